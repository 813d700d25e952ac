"""Backends that break in every way, over sockets: they are taken out, requests go elsewhere, canaries bring them back, and pages show it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.breaker_settings import BreakerSettings
from gateway.degradation_settings import DegradationSettings
from gateway.settings import ProbeSettings, RetrySettings, TimeoutSettings
from tests import client
from tests.backend import Backend, Ending, Exchange, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import Running, running

PART = b'{"choices":[{"delta":{"content":"x"}}]}'
LAST = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'
ERROR = b'{"error":{"message":"died","type":"X","code":500}}'
WHOLE = sse_script(PART, LAST, b"[DONE]")
SELDOM = ProbeSettings(interval_seconds=3600)
QUICK = DegradationSettings(interval_seconds=0.05)
EAGER = BreakerSettings(failures_in_a_row=2, open_seconds=0.1, max_open_seconds=0.1, slow_start_seconds=0.1)
PATIENT = BreakerSettings(failures_in_a_row=2, open_seconds=3600, max_open_seconds=3600)


def well(_: Request) -> Script:
    return WHOLE


def always(script: Script) -> Callable[[Request], Script]:
    return lambda _: script


def body(number: int) -> dict[str, Any]:
    """Prompts of different lengths: not one prompt that breaks engines."""
    return {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": f"{number} " + "word " * (number % 9)}],
    }


def is_canary(exchange: Exchange) -> bool:
    return bool(exchange.request.json()["messages"][0]["content"] == "Hi")


def asked(backend: Backend) -> int:
    """By clients."""
    return sum(not is_canary(one) for one in backend.exchanges)


def states(gateway: Running) -> list[str]:
    return sorted(one.state for one in gateway.gateway.router.circuits)


async def until_open(gateway: Running) -> list[client.Answer]:
    """Requests until one circuit is open, and what they got."""
    answers: list[client.Answer] = []
    async with asyncio.timeout(client.WAIT_SECONDS):
        while not any(state != "closed" for state in states(gateway)):
            answers.append(await gateway.post(body(len(answers))))
    return answers


async def until_asked(gateway: Running, backend: Backend) -> None:
    """Requests, all answered, until one has gone there."""
    before, number = asked(backend), 0
    async with asyncio.timeout(client.WAIT_SECONDS):
        while asked(backend) == before:
            number += 1
            answer = await gateway.post(body(number))
            assert answer.complete and b"[DONE]" in answer.body


FAULTS = {
    "reset": Script(framing=Framing.RAW, ending=Ending.RESET),
    "cut before its head": Script(framing=Framing.RAW, ending=Ending.CUT),
    "500": json_script({}, status=500),
    "502": json_script({}, status=502),
    "no first byte": Script(before_head=Gate()),
    "error event at once": sse_script(ERROR, b"[DONE]"),
    "silent inside": sse_script(PART, ending=Ending.SILENT),
    "cut inside": sse_script(PART, ending=Ending.CUT),
    "reset inside": sse_script(PART, ending=Ending.RESET),
    "ends unfinished": sse_script(PART),
    "error event inside": sse_script(PART, ERROR, b"[DONE]"),
}
INSIDE = {"silent inside", "cut inside", "reset inside", "ends unfinished", "error event inside"}
TIMEOUTS = TimeoutSettings(first_byte_seconds=0.4, gap_seconds=0.4)


@pytest.mark.parametrize(("name", "script"), FAULTS.items(), ids=FAULTS.keys())
async def test_a_backend_that_breaks_is_left_out_until_canaries_find_it_well(
    name: str, script: Script
) -> None:
    async with (
        Backend(always(script)) as bad,
        Backend(well) as good,
        running(bad, good, probes=SELDOM, timeouts=TIMEOUTS, breaker=EAGER, degradation=QUICK) as gateway,
    ):
        answers = await until_open(gateway)
        lost = [
            answer
            for answer in answers
            if not answer.complete or b"[DONE]" not in answer.body or b"error" in answer.body
        ]
        assert len(lost) <= (2 if name in INSIDE else 0), "no more than what was running there"
        before = asked(bad)
        for number in range(10):
            answer = await gateway.post(body(number))
            assert answer.complete and b"[DONE]" in answer.body
        assert asked(bad) == before
        assert gateway.metric("headrace_circuit_trips_total", cause="consecutive") == 1
        bad.script = well
        await until(lambda: set(states(gateway)) == {"closed"})
        well_said = [gateway.metric("headrace_canaries_total", outcome=one) for one in ("good", "slow")]
        assert sum(well_said) == 3
        await until_asked(gateway, bad)
        await until(lambda: not any(one.shares for one in gateway.gateway.router.fleet))  # its slow start


async def test_a_backend_that_refuses_connections_is_left_out_and_comes_back() -> None:
    async with (
        Backend(well) as bad,
        Backend(well) as good,
        running(bad, good, probes=SELDOM, breaker=EAGER, degradation=QUICK) as gateway,
    ):
        await bad.stop()
        for answer in await until_open(gateway):
            assert answer.complete and b"[DONE]" in answer.body
        await until(lambda: gateway.metric("headrace_canaries_total", outcome="bad") >= 1)
        await bad.start()
        await until(lambda: set(states(gateway)) == {"closed"})
        await until_asked(gateway, bad)


NEUTRAL = {
    "400": json_script({"error": {"message": "m"}}, status=400),
    "404": json_script({"error": {"message": "m"}}, status=404),
    "422": json_script({"error": {"message": "m"}}, status=422),
    "429": json_script({"error": {"message": "m"}}, status=429),
    "503": json_script({"error": {"message": "m"}}, status=503),
    "a client's fault as an event": sse_script(b'{"error":{"message":"m","code":400}}', b"[DONE]"),
    "full as an event": sse_script(b'{"error":{"message":"m","code":503}}', b"[DONE]"),
}


@pytest.mark.parametrize("script", NEUTRAL.values(), ids=NEUTRAL.keys())
async def test_a_clients_fault_and_a_full_engine_open_nothing(script: Script) -> None:
    async with (
        Backend(always(script)) as one,
        Backend(always(script)) as two,
        running(one, two, probes=SELDOM, breaker=EAGER) as gateway,
    ):
        for number in range(30):
            await gateway.post(body(number))
        assert states(gateway) == [] and asked(one) + asked(two) >= 30


async def test_clients_that_leave_open_nothing() -> None:
    async with (
        Backend(always(sse_script(PART, Gate()))) as engine,
        running(engine, probes=SELDOM, breaker=EAGER) as gateway,
    ):
        for number in range(10):
            async with await gateway.begin(body(number)) as connection:
                await connection.read_head()
            await until(gateway.is_quiet)
        assert states(gateway) == []


async def test_an_answer_that_is_longer_than_its_total_time_says_nothing_of_its_engine() -> None:
    timeouts = TimeoutSettings(total_seconds=0.1)
    async with (
        Backend(always(sse_script(PART, ending=Ending.SILENT))) as engine,
        running(engine, probes=SELDOM, breaker=EAGER, timeouts=timeouts) as gateway,
    ):
        for number in range(4):
            assert b"total_timeout" in (await gateway.post(body(number))).body
        assert states(gateway) == []


async def test_one_model_that_breaks_leaves_the_others_of_its_engine_in_use() -> None:
    def script(request: Request) -> Script:
        return json_script({}, status=500) if request.json()["model"] == "m" else WHOLE

    async with (
        Backend(script, models=["m", "n"]) as half,
        Backend(well, models=["m", "n"]) as good,
        running(half, good, probes=SELDOM, breaker=PATIENT) as gateway,
    ):
        await until_open(gateway)
        before = len(half.exchanges)
        for number in range(6):
            assert (await gateway.post(body(number))).status == 200
        assert len(half.exchanges) == before
        for number in range(6):
            assert (await gateway.post(body(number) | {"model": "n"})).status == 200
        assert len(half.exchanges) > before
        assert gateway.metric("headrace_circuit_state", model="m") == 2
        assert gateway.metric("headrace_circuit_state", model="n") == 0
        assert gateway.metric("headrace_backend_held") == 0


async def test_where_all_are_broken_they_are_used_all_the_same_and_clients_hear_what_the_engines_say() -> (
    None
):
    told = json_script({"error": {"message": "broken"}}, status=500)
    async with (
        Backend(always(told)) as one,
        Backend(always(told)) as two,
        running(
            one, two, window=10, probes=SELDOM, breaker=PATIENT, retries=RetrySettings(max_retries=0)
        ) as gateway,
    ):
        number = 0
        while states(gateway) != ["open", "open"]:
            await gateway.post(body(number := number + 1))
        before = asked(one) + asked(two)
        for _ in range(10):
            answer = await gateway.post(body(number := number + 1))
            assert answer.status == 500 and json.loads(answer.body)["error"]["message"] == "broken"
        assert asked(one) + asked(two) == before + 10
        assert gateway.metric("headrace_pool_panic") == 1
        assert gateway.metric("headrace_backend_share", limiter="panic") == 0.1
        assert gateway.metric("headrace_backend_held", hold="circuit") == 1


async def test_without_panic_the_refusal_names_itself_and_is_counted_as_a_loss() -> None:
    breaker = BreakerSettings(failures_in_a_row=2, open_seconds=3600, max_open_seconds=3600, panic_share=1)
    async with (
        Backend(always(json_script({}, status=500))) as only,
        running(only, probes=SELDOM, breaker=breaker) as gateway,
    ):
        await until_open(gateway)
        before = asked(only)
        answer = await gateway.post(body(0))
        error = json.loads(answer.body)["error"]
        assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"no_backend")
        assert error["code"] == 503 and error["type"] and error["message"] and answer.value(b"retry-after")
        assert asked(only) == before
        assert gateway.metric("headrace_refusals_total", reason="no_backend") == 1
        state = json.loads((await gateway.get("/admin/state")).body)["breaker"]
        assert state["lost_requests"] == 1 and state["lost_tokens"] > 0 and state["open_ratio"] == 1.0
        assert state["pools_in_panic"] == []


async def test_the_state_page_shows_circuits_with_what_they_counted() -> None:
    async with (
        Backend(always(json_script({}, status=500))) as bad,
        Backend(well) as good,
        running(bad, good, probes=SELDOM, breaker=PATIENT) as gateway,
    ):
        await until_open(gateway)
        page = json.loads((await gateway.get("/admin/state")).body)["breaker"]
        assert page["open_ratio"] == 0.5 and page["pools_in_panic"] == [] and page["lost_requests"] == 0
        left_out, used = page["backends"]
        assert left_out["holds"] == ["circuit"] and used["holds"] == []
        [circuit] = left_out["circuits"]
        assert 1700 < circuit.pop("probe_in_seconds") <= 3600
        assert circuit == {
            "model": "m",
            "state": "open",
            "cause": "consecutive",
            "k": 0,
            "good_canaries": 0,
            "failures_in_a_row": 2,
            "fast": {"calls": 2, "failures": 2, "slow": 0},
            "slow": {"calls": 2, "failures": 2, "slow": 0},
        }
        [other] = used["circuits"]
        assert (other["state"], other["cause"], other["probe_in_seconds"]) == ("closed", None, None)
        assert other["fast"]["failures"] == 0 and other["fast"]["calls"] >= 2


async def test_while_it_comes_back_pages_show_how_much_of_it_is_used() -> None:
    breaker = BreakerSettings(
        failures_in_a_row=2, open_seconds=0.1, max_open_seconds=0.1, slow_start_seconds=3600
    )
    async with (
        Backend(always(json_script({}, status=500))) as bad,
        Backend(well) as good,
        running(bad, good, window=100, probes=SELDOM, breaker=breaker) as gateway,
    ):
        await until_open(gateway)
        bad.script = well
        await until(lambda: set(states(gateway)) == {"closed"})
        share = gateway.metric("headrace_backend_share", limiter="slow_start")
        assert 0.1 <= share < 0.2
        page = json.loads((await gateway.get("/admin/state")).body)
        assert page["backends"][0]["window"] == 10
        assert page["breaker"]["backends"][0]["share"] == pytest.approx(share, abs=0.01)
        names = ("closed", "half_open", "open")
        counts = [gateway.metric("headrace_circuit_transitions_total", state=name) for name in names]
        assert counts[0] == 1 and counts[1] >= 1 and counts[2] == counts[1]


async def test_a_breaker_that_is_switched_off_takes_nobody_out() -> None:
    async with (
        Backend(always(json_script({}, status=500))) as bad,
        Backend(well) as good,
        running(
            bad, good, probes=SELDOM, breaker=BreakerSettings(enabled=False, failures_in_a_row=2)
        ) as gateway,
    ):
        number = 0
        while asked(bad) < 10:
            await gateway.post(body(number := number + 1))
        assert states(gateway) == []
