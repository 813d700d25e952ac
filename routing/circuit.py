"""What is kept of one circuit, and of one backend for the sake of its circuits. State only; `routing.circuits` changes it.

A circuit is of one backend and one model that it tells, or of all that has no circuit of its own (model "").
"""

from __future__ import annotations

from math import inf

from policies.circuit import CircuitState, TripCause
from policies.lengths import TextSize
from policies.outlier import USUAL, Standing
from routing.backend import Backend
from routing.calls_window import CallsWindow
from routing.decision import Intent

Source = tuple[str, TextSize | None]
"""Whose request it was, and how long its prompt: two of them are surely two prompts."""


def source_of(intent: Intent) -> Source:
    return intent.tenant, intent.size


class Circuit:
    __slots__ = (
        "backend",
        "cause",
        "closed_at",
        "failed_share",
        "good_canaries",
        "has_slow",
        "in_a_row",
        "is_live",
        "is_probing",
        "k",
        "model",
        "next_k",
        "other_source_at",
        "probe_at",
        "row_has_two_sources",
        "row_source",
        "served",
        "since",
        "source",
        "source_at",
        "state",
        "window",
    )

    def __init__(self, backend: Backend, model: str, seconds: int) -> None:
        self.backend = backend
        self.model = model
        self.window = CallsWindow(seconds)
        self.state = CircuitState.CLOSED
        self.since = 0
        """`backend.circuit_changes` at its last change: what was granted before says nothing."""
        self.closed_at = -inf
        self.cause: TripCause | None = None
        """Why it opened, when it was closed last."""
        self.k = self.next_k = 0
        """Exponents of the last pause and of the next."""
        self.probe_at = inf
        self.is_probing = False
        self.good_canaries = 0
        self.is_live = True
        """False once it is not kept any more."""
        self.in_a_row = 0
        self.row_source: Source | None = None
        self.row_has_two_sources = False
        self.source: Source | None = None
        """Of the last failure, and when that was."""
        self.source_at = -inf
        self.other_source_at = -inf
        """When the last failure was that came from another source than the last one."""
        self.served: Intent | None = None
        """What was answered well last."""
        self.has_slow = False
        """There may be slow calls in the window."""
        self.failed_share = 0.0
        """Of its calls, as last looked at."""

    @property
    def is_closed(self) -> bool:
        return self.state is CircuitState.CLOSED

    def failed(self, source: Source, now: float) -> None:
        self.window.note(now, failed=True)
        self.in_a_row += 1
        if self.in_a_row == 1:
            self.row_source, self.row_has_two_sources = source, False
        elif source != self.row_source:
            self.row_has_two_sources = True
        if source != self.source:
            self.other_source_at, self.source = self.source_at, source
        self.source_at = now

    def look_back(self, seconds: int, now: float) -> None:
        calls = self.window.last(seconds, now)
        if calls.calls:
            self.failed_share = calls.failed_share

    def forget_calls(self) -> None:
        self.window.forget()
        self.in_a_row = 0
        self.source = None
        self.source_at = self.other_source_at = -inf
        self.has_slow = False


class Watch:
    """One backend: its circuits by model, its pace, and how it comes back."""

    __slots__ = (
        "backend",
        "circuits",
        "has_peers",
        "others_pace",
        "pace_calls",
        "pace_sum",
        "slow_start_at",
        "standing",
        "was_absent",
    )

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.circuits: dict[str, Circuit] = {}
        self.has_peers = False
        """Whether there is another backend in its pool to compare it with."""
        self.pace_sum = 0.0
        self.pace_calls = 0
        """Since its last window with enough of them; see `policies.outlier`."""
        self.others_pace: float | None = None
        self.standing: Standing = USUAL
        self.slow_start_at: float | None = None
        """When it came back, while it has not yet all of its window."""
        self.was_absent = False

    def open_models(self) -> frozenset[str]:
        return frozenset([model for model, circuit in self.circuits.items() if not circuit.is_closed])

    def is_open(self, open_models: frozenset[str]) -> bool:
        """Whether that leaves it nothing to serve."""
        models = self.backend.models
        return "" in open_models or (bool(models) and models is not None and models <= open_models)
