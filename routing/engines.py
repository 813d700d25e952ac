"""What is heard of the engines beside their answers: whether they are well, what they serve, what they are and how busy.

All of a backend that is not configured any more is ignored.
Setting: `probe_failures` in a row (`probes.failures`, default 3) take a backend out.
"""

from __future__ import annotations

from policies.dialects import Dialect, EngineFlags, EngineReport
from policies.terms import BackendId
from routing.fleet import Fleet
from routing.placement import Placement


class Engines:
    def __init__(self, fleet: Fleet, placement: Placement) -> None:
        self.probe_failures = 3
        self._fleet = fleet
        self._placement = placement

    def probed(self, backend_id: BackendId, healthy: bool, refused: bool, now: float) -> None:
        """A health probe's result; `refused`: nobody listens there, which needs no second opinion."""
        backend = self._fleet.get(backend_id)
        if backend is None:
            return
        if healthy:
            self._fleet.mark_reachable(backend)
            return
        backend.probe_failures += 1
        if refused or backend.probe_failures >= self.probe_failures:
            self._fleet.mark_unreachable(backend, now)

    def learn_models(self, backend_id: BackendId, models: frozenset[str]) -> None:
        backend = self._fleet.get(backend_id)
        if backend is not None:
            self._fleet.learn_models(backend, models)

    def is_dialect(self, backend_id: BackendId, dialect: Dialect, flags: EngineFlags) -> None:
        backend = self._fleet.get(backend_id)
        if backend is not None:
            if Dialect.UNKNOWN != backend.dialect != dialect != Dialect.UNKNOWN:
                backend.restarted()
            backend.dialect, backend.flags = dialect, flags
            backend.fingerprint = ""
            backend.warm_up()

    def reported(self, backend_id: BackendId, report: EngineReport, now: float) -> None:
        backend = self._fleet.get(backend_id)
        if backend is not None:
            before = backend.report
            self._fleet.reported(backend, report, now)
            self._placement.reported(backend, before, report)
