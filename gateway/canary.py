"""The way back of an open circuit: small streamed calls of the gateway's own, so that no client pays for finding out whether an engine is well.

One task and one HTTP client per circuit that is not closed, each call on a connection of its own. At `probe_at` it makes one call of a few tokens, chat first, then completion, then embedding: the first that is not
answered 4xx, by its status or by an error event, decides, and where all are, the engine answers, which is good. `policies.circuit.CanaryOutcome` says what the others mean; anything but a whole answer within `canary_timeout_seconds` is bad.
The task ends with its circuit, the configuration or `close`. Writes a line to the log at each opening and closing, and for each bad probe.

Limit: the call is short, so an engine that fails long prompts alone is let back and taken out again, each time for longer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import httpx

from gateway.breaker_settings import BreakerSettings
from gateway.configuration import backend_name
from gateway.engine_client import engine_client
from gateway.events import EventReader
from gateway.relay import verdict_of, verdict_of_error
from gateway.settings import BackendSettings
from policies.circuit import Calls, CanaryOutcome, CircuitState, TripCause
from policies.terms import BackendId, Verdict
from routing.backend import Hold
from routing.circuit import Circuit
from routing.circuits import Circuits

_logger = logging.getLogger("headrace")
_MAX_TOKENS = 8
_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": _MAX_TOKENS, "stream": True},
    ),
    ("/v1/completions", {"prompt": "Hi", "max_tokens": _MAX_TOKENS, "stream": True}),
    ("/v1/embeddings", {"input": "Hi"}),
)
_OF_VERDICT = {
    Verdict.FAULT: CanaryOutcome.BAD,
    Verdict.BACKPRESSURE: CanaryOutcome.NEUTRAL,
    Verdict.GOOD: CanaryOutcome.GOOD,
}


class Canaries:
    def __init__(
        self, circuits: Circuits, pump: Callable[[], None], chance: Callable[[], float] = random.random
    ) -> None:
        """`pump` is called after each result. `chance` draws from 0 to 1."""
        self._circuits = circuits
        self._pump = pump
        self._chance = chance
        self._rules = BreakerSettings()
        self._backends: dict[BackendId, BackendSettings] = {}
        self._tasks: dict[Circuit, asyncio.Task[None]] = {}
        """One for each circuit that is not closed."""
        self._wakes: dict[Circuit, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()
        circuits.on_change = self._changed

    def configure(self, backends: Iterable[BackendSettings], rules: BreakerSettings) -> None:
        """After the router's: circuits that it does not keep have ended. Those whose backend is reached otherwise now are probed anew."""
        before, self._backends = self._backends, {BackendId(backend_name(one)): one for one in backends}
        self._rules = rules
        for circuit in list(self._tasks):
            id = circuit.backend.id
            if before.get(id) != self._backends.get(id):
                self._end(circuit)
                self._begin(circuit)

    def beat(self, now: float) -> None:
        self._circuits.beat(now, self._chance())

    async def close(self) -> None:
        """Circuits that open from now on are not probed."""
        self._circuits.on_change = _ignored
        tasks = list(self._tasks.values())
        for circuit in list(self._tasks):
            self._end(circuit)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, circuit: Circuit) -> None:
        if not circuit.is_live:
            self._end(circuit)
        elif circuit in self._tasks:
            self._wakes[circuit].set()
        else:
            self._say_opened(circuit)
            self._begin(circuit)

    def _begin(self, circuit: Circuit) -> None:
        self._wakes[circuit] = asyncio.Event()
        self._tasks[circuit] = self._loop.create_task(self._bring_back(circuit))

    def _end(self, circuit: Circuit) -> None:
        task = self._tasks.pop(circuit, None)
        if task is not None:
            del self._wakes[circuit]
            task.cancel()

    async def _bring_back(self, circuit: Circuit) -> None:
        client: httpx.AsyncClient | None = None

        def reached() -> httpx.AsyncClient:
            """One for all its calls, as a TLS context costs milliseconds; made at the first, whose outcome tells where it cannot be."""
            nonlocal client
            if client is None:
                client = engine_client(self._backends[circuit.backend.id])
            return client

        try:
            await self._call_until_closed(circuit, reached)
        finally:
            if client is not None:
                await client.aclose()

    async def _call_until_closed(self, circuit: Circuit, reached: Callable[[], httpx.AsyncClient]) -> None:
        circuits, clock = self._circuits, self._loop.time
        wake = self._wakes[circuit]
        while not circuit.is_closed:
            if not circuits.canary_begins(circuit, clock()):
                wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(circuit.probe_at):
                        await wake.wait()
                continue
            try:
                outcome, problem = await self._call(circuit, reached)
            except BaseException:
                circuits.canary_given_up(circuit)
                raise
            circuits.canary_ended(circuit, outcome, clock(), self._chance())
            if circuit.state is CircuitState.OPEN:
                self._say_still_open(circuit, problem)
            self._pump()
        # No await between the circuit's closing and this: it may open again at any moment, and then gets a new task.
        del self._tasks[circuit], self._wakes[circuit]
        self._say_closed(circuit)

    async def _call(
        self, circuit: Circuit, reached: Callable[[], httpx.AsyncClient]
    ) -> tuple[CanaryOutcome, str]:
        limit_seconds = self._circuits.canary_limit_seconds(circuit.backend)
        model = circuit.model or min(circuit.backend.models or {""})
        seconds = self._rules.canary_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await ask(reached(), model, limit_seconds)
        except TimeoutError:
            return CanaryOutcome.BAD, f"no whole answer within {seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return CanaryOutcome.BAD, f"{type(error).__name__} {error}".strip()
        except Exception as error:  # a task that ends for good would leave its backend out
            _logger.exception("a canary for %s failed", _name(circuit))
            return CanaryOutcome.BAD, f"{type(error).__name__} {error}".strip()

    # --- the log --------------------------------------------------------------------------------------------------------------

    def _say_opened(self, circuit: Circuit) -> None:
        rules, now = self._circuits.rules, self._loop.time()
        fast = circuit.window.last(rules.fast_seconds, now)
        slow = circuit.window.last(rules.slow_seconds, now)
        _logger.warning(
            "%s: the circuit opens, %s; %s; probed in %.1f s",
            _name(circuit),
            _why(circuit, fast, slow, rules.fast_seconds, rules.slow_seconds),
            "nothing new is sent there"
            if Hold.CIRCUIT in circuit.backend.holds
            else "its other models go on"
            if circuit.model in circuit.backend.open_models
            else "it is used all the same, for want of others",
            circuit.probe_at - now,
        )

    def _say_still_open(self, circuit: Circuit, problem: str) -> None:
        _logger.warning(
            "%s: the circuit stays open, its canary was not good: %s; probed again in %.1f s",
            _name(circuit),
            problem,
            circuit.probe_at - self._loop.time(),
        )

    def _say_closed(self, circuit: Circuit) -> None:
        rules = self._circuits.rules
        _logger.info(
            "%s: the circuit closes, %d canaries in a row were good; it gets its whole window within %g s",
            _name(circuit),
            rules.good_canaries,
            rules.slow_start_seconds,
        )


def _ignored(circuit: Circuit) -> None:
    """After the end."""


async def ask(client: httpx.AsyncClient, model: str, limit_seconds: float) -> tuple[CanaryOutcome, str]:
    """One canary, and what is wrong. What begins to answer after `limit_seconds` is slow."""
    clock = asyncio.get_running_loop().time
    for path, fields in _KINDS:
        sent_at = clock()
        async with client.stream(
            "POST", path, json={"model": model, **fields} if model else fields
        ) as answer:
            verdict = verdict_of(answer.status_code)
            if verdict is Verdict.IGNORED:
                continue
            if verdict is not Verdict.GOOD:
                return _OF_VERDICT[verdict], f"{answer.status_code} to {path}"
            reader = EventReader(keep_usage_back=False)
            seconds = 0.0
            async for data in answer.aiter_raw():
                if data:
                    seconds = seconds or clock() - sent_at
                    reader.feed(data)
            reader.flush()
        if reader.error is not None:
            verdict = verdict_of_error(reader.error)
            if verdict is Verdict.IGNORED:
                continue  # as some engines word a 4xx once a stream was asked for
            return _OF_VERDICT[verdict], f"an error event from {path}"
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        if is_stream and not reader.finished:
            return CanaryOutcome.BAD, f"an answer from {path} that was not finished"
        if seconds > limit_seconds:
            return (
                CanaryOutcome.SLOW,
                f"{seconds:.2f} s to the first byte, where {limit_seconds:.2f} s are slow",
            )
        return CanaryOutcome.GOOD, ""
    return CanaryOutcome.GOOD, ""


def _name(circuit: Circuit) -> str:
    return f"backend {circuit.backend.id}" + (f", model {circuit.model}" if circuit.model else "")


def _why(circuit: Circuit, fast: Calls, slow: Calls, fast_seconds: int, slow_seconds: int) -> str:
    if circuit.cause is TripCause.CONSECUTIVE:
        return f"{circuit.in_a_row} calls in a row failed"
    if circuit.cause is TripCause.SLOW_CALLS:
        return f"{slow.slow} of {slow.calls} calls in {slow_seconds} s were much slower than elsewhere"
    return f"{fast.failures} of {fast.calls} calls in {fast_seconds} s failed"
