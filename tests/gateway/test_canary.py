"""Canaries over sockets: what an answer of each kind says, and how a circuit is brought back by them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf

import pytest

from gateway.breaker_settings import BreakerSettings
from gateway.canary import Canaries, ask
from gateway.configuration import backend_name
from gateway.engine_client import engine_client
from gateway.settings import BackendSettings
from policies.circuit import CanaryOutcome, CircuitRules, CircuitState
from policies.terms import BackendId, PoolName, Verdict
from routing.backend import BackendPlan
from routing.circuit import Circuit
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.script import SSE

PART = b'{"choices":[{"delta":{"content":"x"}}]}'
LAST = b'{"choices":[{"delta":{},"finish_reason":"length"}]}'
WHOLE = sse_script(PART, LAST, b"[DONE]")
CHAT, COMPLETION, EMBEDDING = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def died(code: int) -> bytes:
    return b'{"error":{"message":"m","code":%d}}' % code


OUTCOMES = {
    "whole stream": (WHOLE, CanaryOutcome.GOOD),
    "whole stream without its last line end": (
        Script(headers=[SSE], chunks=[b"data: " + PART + b"\n\ndata: [DONE]"], framing=Framing.CHUNKED),
        CanaryOutcome.GOOD,
    ),
    "whole answer": (json_script({"choices": []}), CanaryOutcome.GOOD),
    "500": (json_script({}, status=500), CanaryOutcome.BAD),
    "502": (json_script({}, status=502), CanaryOutcome.BAD),
    "429": (json_script({}, status=429), CanaryOutcome.NEUTRAL),
    "503": (json_script({}, status=503), CanaryOutcome.NEUTRAL),
    "everything is 404": (json_script({}, status=404), CanaryOutcome.GOOD),
    "error event": (sse_script(died(500), b"[DONE]"), CanaryOutcome.BAD),
    "error event later": (sse_script(PART, died(500), b"[DONE]"), CanaryOutcome.BAD),
    "error event without a code": (sse_script(b'{"error":{"message":"m"}}', b"[DONE]"), CanaryOutcome.BAD),
    "full, as an event": (sse_script(died(503), b"[DONE]"), CanaryOutcome.NEUTRAL),
    "the canary's fault, as an event": (sse_script(died(400), b"[DONE]"), CanaryOutcome.GOOD),
    "not finished": (sse_script(PART), CanaryOutcome.BAD),
    "empty": (sse_script(), CanaryOutcome.BAD),
    "cut": (sse_script(PART, ending=Ending.CUT), CanaryOutcome.BAD),
    "reset": (sse_script(PART, ending=Ending.RESET), CanaryOutcome.BAD),
    "no answer": (Script(framing=Framing.RAW, ending=Ending.CUT), CanaryOutcome.BAD),
    "not http": (Script(chunks=[b"no\r\n\r\n"], framing=Framing.RAW, ending=Ending.CUT), CanaryOutcome.BAD),
}


class Stage:
    """A router with one circuit open, and canaries that bring it back from engines on real sockets."""

    def __init__(self, settings: list[BackendSettings], rules: BreakerSettings, good_canaries: int) -> None:
        self.rules = Rules(
            circuit=CircuitRules(
                open_seconds=rules.open_seconds,
                max_open_seconds=rules.open_seconds,
                good_canaries=good_canaries,
            )
        )
        self.router = Router(self.rules)
        self.clock = asyncio.get_running_loop().time
        self.pumps = 0
        self.canaries = Canaries(self.router.circuits, self.pump)
        self.configure(settings, rules)

    def configure(self, settings: list[BackendSettings], rules: BreakerSettings) -> None:
        plans = [BackendPlan(BackendId(backend_name(one)), PoolName("p")) for one in settings]
        self.router.configure(plans, self.rules)
        self.canaries.configure(settings, rules)

    def pump(self) -> None:
        self.pumps += 1

    def breaks(self, model: str = "") -> Circuit:
        backend = next(iter(self.router.fleet))
        for number in range(5):
            lease = self.router.arrive(model, self.clock(), Intent(tenant=str(number), backend=backend.id))
            assert isinstance(lease, Lease)
            lease.verdict = Verdict.FAULT
            self.router.finish(lease, self.clock())
        [circuit] = [one for one in self.router.circuits if not one.is_closed]
        return circuit

    def count(self, outcome: CanaryOutcome) -> int:
        return sum(n for (_, one), n in self.router.circuits.canaries.items() if one is outcome)


@asynccontextmanager
async def staged(*backends: Backend, good_canaries: int = 1, **rules: float) -> AsyncIterator[Stage]:
    settings = [BackendSettings(url=one.url) for one in backends]
    stage = Stage(settings, BreakerSettings(**{"open_seconds": 0.05, **rules}), good_canaries)  # type: ignore[arg-type]
    try:
        yield stage
    finally:
        await stage.canaries.close()
    assert canary_tasks() == 0


def canary_tasks() -> int:
    return sum("_bring_back" in repr(task.get_coro()) for task in asyncio.all_tasks())


@pytest.mark.parametrize(("script", "outcome"), OUTCOMES.values(), ids=OUTCOMES.keys())
async def test_what_an_engine_answers_says_whether_it_is_well(script: Script, outcome: CanaryOutcome) -> None:
    async with Backend(lambda _: script) as engine, staged(engine) as stage:
        circuit = stage.breaks()
        await until(lambda: stage.count(outcome) > 0)
        assert stage.pumps >= 1
        assert circuit.is_closed == (outcome is CanaryOutcome.GOOD)
        if outcome is CanaryOutcome.NEUTRAL:
            assert circuit.state is CircuitState.HALF_OPEN and circuit.k == 0
        assert {one for _, one in stage.router.circuits.canaries} == {outcome}


async def test_an_engine_that_refuses_connections_is_not_well(caplog: pytest.LogCaptureFixture) -> None:
    async with Backend() as engine, staged(engine) as stage:
        await engine.stop()
        stage.breaks()
        await until(lambda: stage.count(CanaryOutcome.BAD) >= 2)
        await engine.start()
        await until(lambda: stage.count(CanaryOutcome.GOOD) == 1)
    assert not [record for record in caplog.records if record.exc_info], "nothing unexpected"
    assert "ConnectError" in caplog.text


@pytest.mark.parametrize(
    "script",
    [Script(before_head=Gate()), sse_script(Gate(), PART), sse_script(PART, ending=Ending.SILENT)],
    ids=["no head", "no first event", "no end"],
)
async def test_within_canary_timeout_seconds_the_answer_has_to_be_whole(script: Script) -> None:
    async with Backend(lambda _: script) as engine, staged(engine, canary_timeout_seconds=0.05) as stage:
        stage.breaks()
        await until(lambda: stage.count(CanaryOutcome.BAD) >= 2)
    async with Backend(lambda _: script) as engine, staged(engine, canary_timeout_seconds=600) as stage:
        circuit = stage.breaks()
        await engine.until(lambda: len(engine.exchanges) == 1)
        assert circuit.is_probing
        assert not stage.router.circuits.canaries


async def test_a_canary_is_a_streamed_call_for_a_few_tokens_of_the_model_on_a_connection_of_its_own() -> None:
    async with Backend(lambda _: WHOLE, models=["m"]) as engine:
        settings = BackendSettings(url=engine.url, api_key="secret")
        async with engine_client(settings, 5.0) as client:
            assert await ask(client, "m", inf) == (CanaryOutcome.GOOD, "")
        [exchange] = engine.exchanges
        assert exchange.request.path == CHAT and exchange.request.value(b"authorization") == b"Bearer secret"
        sent = exchange.request.json()
        assert (sent["model"], sent["max_tokens"], sent["stream"]) == ("m", 8, True)


async def test_an_engine_of_another_kind_is_asked_in_its_way() -> None:
    def script(request: Request) -> Script:
        return json_script({"data": []}) if request.path == EMBEDDING else json_script({}, status=404)

    async with Backend(script) as engine, engine_client(BackendSettings(url=engine.url), 5.0) as client:
        assert await ask(client, "", inf) == (CanaryOutcome.GOOD, "")
        assert [one.request.path for one in engine.exchanges] == [CHAT, COMPLETION, EMBEDDING]
        assert all("model" not in one.request.json() for one in engine.exchanges)
        engine.script = lambda request: json_script({}, status=404 if request.path == CHAT else 500)
        outcome, problem = await ask(client, "", inf)
        assert outcome is CanaryOutcome.BAD and problem == f"500 to {COMPLETION}"


@pytest.mark.parametrize("status", [200, 404, 501])
async def test_what_an_engine_of_another_kind_says_of_its_own_way_decides_however_it_refuses_the_others(
    status: int,
) -> None:
    def script(request: Request) -> Script:
        if request.path == EMBEDDING:
            return json_script({}, status=500)
        return sse_script(died(400), b"[DONE]") if status == 200 else json_script({}, status=status)

    async with Backend(script) as engine, engine_client(BackendSettings(url=engine.url), 5.0) as client:
        assert (await ask(client, "m", 60.0))[0] is CanaryOutcome.BAD
        assert [one.request.path for one in engine.exchanges] == [CHAT, COMPLETION, EMBEDDING]


async def test_a_first_byte_after_the_limit_is_slow() -> None:
    async with (
        Backend(lambda _: WHOLE) as engine,
        engine_client(BackendSettings(url=engine.url), 5.0) as client,
    ):
        outcome, problem = await ask(client, "m", 0.0)
        assert outcome is CanaryOutcome.SLOW and "to the first byte" in problem


async def test_one_at_a_time_until_enough_in_a_row_were_good() -> None:
    gates: list[Gate] = []

    def script(_: Request) -> Script:
        gates.append(Gate())
        return sse_script(gates[-1], PART, LAST, b"[DONE]")

    async with Backend(script) as engine, staged(engine, good_canaries=3) as stage:
        circuit = stage.breaks()
        for number in range(3):
            assert not circuit.is_closed
            await until(lambda wanted=number + 1: len(gates) == wanted)  # type: ignore[misc]
            assert circuit.is_probing
            gates[-1].set()
        await until(lambda: circuit.is_closed)
        assert len(engine.exchanges) == 3 and stage.count(CanaryOutcome.GOOD) == 3
        # And once more: each opening has its own task.
        circuit = stage.breaks()
        await until(lambda: len(gates) == 4)


async def test_a_model_of_its_own_is_asked_for_and_ends_with_it() -> None:
    async with Backend(lambda _: json_script({}, status=500)) as engine, staged(engine) as stage:
        [backend] = stage.router.fleet
        stage.router.engines.learn_models(backend.id, frozenset({"m", "n"}))
        stage.breaks("n")
        await until(lambda: stage.count(CanaryOutcome.BAD) >= 2)
        assert {exchange.request.json()["model"] for exchange in engine.exchanges} == {"n"}
        assert canary_tasks() == 1
        stage.router.engines.learn_models(backend.id, frozenset({"m"}))
        await until(lambda: canary_tasks() == 0)


async def test_a_canary_that_is_under_way_when_its_backend_is_configured_anew_is_given_up_for_another() -> (
    None
):
    silent = Script(before_head=Gate())
    async with (
        Backend(lambda _: silent) as engine,
        staged(engine, canary_timeout_seconds=600) as stage,
    ):
        circuit = stage.breaks()
        await engine.until(lambda: len(engine.exchanges) == 1)
        rules = BreakerSettings(canary_timeout_seconds=600)
        engine.script = lambda _: WHOLE
        changed = replace(BackendSettings(url=engine.url), api_key="new")
        stage.configure([changed], rules)
        await until(lambda: circuit.is_closed)
        assert engine.exchanges[-1].request.value(b"authorization") == b"Bearer new"
        assert len(engine.exchanges) == 2 and stage.count(CanaryOutcome.GOOD) == 1


async def test_nothing_is_asked_of_a_backend_that_is_configured_no_more() -> None:
    async with Backend(lambda _: json_script({}, status=500)) as engine, staged(engine) as stage:
        stage.breaks()
        await until(lambda: stage.count(CanaryOutcome.BAD) >= 1)
        stage.configure([], BreakerSettings())
        await until(lambda: canary_tasks() == 0)


async def test_the_log_says_when_it_opens_why_it_stays_open_and_when_it_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    async with Backend(lambda _: json_script({}, status=500)) as engine, staged(engine) as stage:
        circuit = stage.breaks()
        await until(lambda: stage.count(CanaryOutcome.BAD) >= 1)
        engine.script = lambda _: WHOLE
        await until(lambda: circuit.is_closed)
    texts = [record.getMessage() for record in caplog.records]
    name = f"backend {circuit.backend.id}"
    assert texts[0].startswith(f"{name}: the circuit opens, 5 calls in a row failed; it is used all the same")
    assert texts[1].startswith(
        f"{name}: the circuit stays open, its canary was not good: 500 to {CHAT}; probed"
    )
    assert texts[-1].startswith(f"{name}: the circuit closes, 1 canaries in a row were good")
