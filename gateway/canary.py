"""Small calls of the gateway's own that find out whether a backend whose circuit is open answers well again, so that no client pays for it.

One task per open circuit, one call at a time: a streamed answer of `MAX_TOKENS` tokens, as a chat, else a completion, else an embedding; the first that is not refused as such (4xx) decides. Where
all are refused the engine answers, which is good. The first byte within what `Circuits.canary_limit_seconds` says, else it is slow; a stream has to end as one that is whole.
429 and 503 say that the engine is full, and nothing else.
Settings: `breaker.canary_timeout_seconds`, from the call to the end of the answer.
Limit: a fault that shows only later in an answer, or only in long prompts, is found by clients' calls again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx

from gateway.events import EventReader
from gateway.probes import probe_client
from gateway.settings import BackendSettings
from policies.circuit import CanaryOutcome, CircuitState
from policies.terms import BackendId
from routing.circuit import Circuit
from routing.circuits import Circuits

_logger = logging.getLogger("headrace")
MAX_TOKENS = 8
_MOST_BYTES = 1024 * 1024
_PROMPT = "Count to three."
_CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": _PROMPT}], "max_tokens": MAX_TOKENS, "stream": True},
    ),
    ("/v1/completions", {"prompt": _PROMPT, "max_tokens": MAX_TOKENS, "stream": True}),
    ("/v1/embeddings", {"input": _PROMPT}),
)


class Canaries:
    def __init__(self, circuits: Circuits, changed: Callable[[], None]) -> None:
        """`changed` is called after each result: a circuit that closes may free waiting requests."""
        self._circuits = circuits
        self._changed = changed
        self._backends: dict[BackendId, BackendSettings] = {}
        self._timeout_seconds = 30.0
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Circuit, asyncio.Task[None]] = {}
        self._wakes: dict[Circuit, asyncio.Event] = {}
        circuits.on_change = self._note

    def configure(
        self, backends: Iterable[tuple[BackendId, BackendSettings]], timeout_seconds: float
    ) -> None:
        """To be called before the circuits of backends that left are dropped."""
        self._backends = dict(backends)
        self._timeout_seconds = timeout_seconds

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, circuit: Circuit) -> None:
        _say(circuit, self._loop.time())
        wake = self._wakes.get(circuit)
        if wake is not None:
            wake.set()
        elif circuit.is_live and not circuit.is_closed and circuit.backend.id in self._backends:
            self._wakes[circuit] = asyncio.Event()
            self._tasks[circuit] = asyncio.create_task(self._watch(circuit))

    async def _watch(self, circuit: Circuit) -> None:
        wake, clock, circuits = self._wakes[circuit], self._loop.time, self._circuits
        try:
            async with probe_client(self._backends[circuit.backend.id], self._timeout_seconds) as client:
                while circuit.is_live and not circuit.is_closed:
                    pause = circuit.probe_at - clock()
                    if pause > 0.0:
                        wake.clear()
                        try:
                            async with asyncio.timeout(pause):
                                await wake.wait()
                        except TimeoutError:
                            pass
                        continue
                    if not circuits.canary_begins(circuit, clock()):
                        return
                    outcome = await self._call(client, circuit)
                    circuits.canary_ended(circuit, outcome, clock(), random.random())  # noqa: S311
                    self._changed()
        finally:
            if circuit.is_probing:
                circuits.canary_given_up(circuit)
            del self._tasks[circuit], self._wakes[circuit]

    async def _call(self, client: httpx.AsyncClient, circuit: Circuit) -> CanaryOutcome:
        limit_seconds = self._circuits.canary_limit_seconds(circuit.backend)
        model = circuit.model or min(circuit.backend.models or ("",))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for path, fields in _CALLS:
                    outcome = await self._answered(client, path, {"model": model, **fields}, limit_seconds)
                    if outcome is not None:
                        return outcome
        except (TimeoutError, httpx.HTTPError):
            return CanaryOutcome.BAD
        except Exception:  # its circuit would stay open for ever
            _logger.exception("the canary of %s failed", circuit.backend.id)
            return CanaryOutcome.BAD
        return CanaryOutcome.GOOD

    async def _answered(
        self, client: httpx.AsyncClient, path: str, fields: Mapping[str, Any], limit_seconds: float
    ) -> CanaryOutcome | None:
        """None where the engine has no such call."""
        began = self._loop.time()
        first_byte_seconds = 0.0
        reader, size = EventReader(False), 0
        async with client.stream("POST", path, json=fields) as answer:
            if answer.status_code in (429, 503):
                return CanaryOutcome.NEUTRAL
            if answer.status_code >= 500:
                return CanaryOutcome.BAD
            if answer.status_code >= 400:
                return None
            async for part in answer.aiter_bytes():
                if not first_byte_seconds:
                    first_byte_seconds = self._loop.time() - began
                size += len(part)
                if size > _MOST_BYTES:
                    return CanaryOutcome.BAD
                reader.feed(part)
        reader.flush()
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        if not size or (is_stream and (reader.error is not None or not reader.finished)):
            return CanaryOutcome.BAD
        return CanaryOutcome.SLOW if first_byte_seconds > limit_seconds else CanaryOutcome.GOOD


def _say(circuit: Circuit, now: float) -> None:
    of = f"{circuit.backend.id} for {circuit.model}" if circuit.model else str(circuit.backend.id)
    if not circuit.is_live:
        return
    if circuit.state is CircuitState.OPEN:
        _logger.warning(
            "circuit of backend %s opened (%s, %.0f %% failed): no requests go there, probed in %.1f s",
            of,
            circuit.cause,
            circuit.failed_share * 100,
            max(0.0, circuit.probe_at - now),
        )
    elif circuit.state is CircuitState.CLOSED:
        _logger.info("circuit of backend %s closed: its window grows back", of)
