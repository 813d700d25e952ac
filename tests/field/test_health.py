"""Health of engines: what counts against one and what does not, what is asked of them, and what is told while nobody answers."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

from gateway.breaker_settings import BreakerSettings
from gateway.settings import EmergencySettings, LanesSettings, ProbeSettings, ServerSettings, TimeoutSettings
from tests import client
from tests.backend import Backend, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import Running, post_request, running
from tests.system.crowd import BATCH, Crowd, Held
from tests.system.test_emergencies import BANK, EMERGENCY, SHOP, TENANTS

OFTEN = ProbeSettings(interval_seconds=0.05, timeout_seconds=0.05, failures=2)
EVENT = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
OWN_PAGES = ("/healthz", "/readyz", "/health", "/ping", "/load", "/v1/models", "/metrics", "/admin/state")


def said_of(gateway: Running) -> tuple[float, float, list[bool]]:
    """What its breaker and its probes say of the one backend."""
    circuits = {one.state for one in gateway.gateway.router.circuits}
    assert circuits <= {"closed"}
    return (
        gateway.metric("headrace_circuit_trips_total"),
        gateway.metric("headrace_retries_total"),
        gateway.present(),
    )


UNTOUCHED = (0, 0, [True])
TIMES = 20


async def test_b110_a_call_that_gives_way_to_an_emergency_says_nothing_about_its_engine() -> None:
    held = Held()
    lanes = LanesSettings(emergency=EmergencySettings(reserved_per_pool=0, burst=100, budget_share=1))
    async with (
        held.backend as backend,
        running(backend, window=TIMES, tenants=TENANTS, lanes=lanes) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        calls, urgent = range(TIMES), range(100, 100 + TIMES)
        for number in calls:
            await crowd.send(number, SHOP, BATCH)
        await held.has(*calls)
        for number in urgent:
            await crowd.send(number, BANK, EMERGENCY)
        for exchange in backend.exchanges[:TIMES]:
            await exchange.peer_closed.wait()
        held.let(*calls, *urgent)
        for number in calls:
            assert (await crowd.route(100 + number))["lane"] == "emergency"
            assert (await crowd.route(number))["attempts"] == "2"
        assert gateway.metric("headrace_preemptions_total") == TIMES
        assert said_of(gateway) == UNTOUCHED
        assert gateway.metric("headrace_aborts_total") == 0


async def test_b110_an_answer_that_is_ended_for_its_length_in_time_says_nothing_about_its_engine() -> None:
    limits = TimeoutSettings(total_seconds=0.05)
    async with (
        Backend(lambda _: sse_script(EVENT, Gate())) as backend,
        running(backend, timeouts=limits) as gateway,
    ):
        for number in range(TIMES):
            answer = await gateway.post({"stream": True})
            assert b"total_timeout" in answer.body and not answer.complete
            await backend.exchanges[number].peer_closed.wait()
        assert gateway.metric("headrace_refusals_total", reason="total_timeout") == TIMES
        assert said_of(gateway) == UNTOUCHED
    assert {line["reason"] for line in gateway.log} == {"total_timeout"}


async def test_b110_an_answer_that_its_client_does_not_read_says_nothing_about_its_engine() -> None:
    flood = sse_script(*[EVENT.replace(b"x", b"x" * 1000)] * 20_000)
    async with (
        Backend(lambda _: flood, send_buffer_bytes=4096) as backend,
        running(backend, server=ServerSettings(port=0, stall_seconds=0.2)) as gateway,
        AsyncExitStack() as stack,
    ):
        for _ in range(TIMES):
            connection = await stack.enter_async_context(await gateway.connect(receive_buffer_bytes=4096))
            await connection.send(post_request({"stream": True}))
        for number in range(TIMES):
            await (await backend.exchange(number)).peer_closed.wait()
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total", cause="client_stalled") == TIMES
        assert said_of(gateway) == UNTOUCHED
        backend.script = lambda _: json_script({})
        assert (await gateway.post({})).status == 200


async def test_b110_calls_that_are_ended_by_a_shutdown_say_nothing_about_their_engine() -> None:
    server = ServerSettings(port=0, drain_seconds=0.05)
    async with (
        Backend(lambda _: sse_script(EVENT, Gate())) as backend,
        AsyncExitStack() as stack,
        running(backend, server=server) as gateway,
    ):
        for _ in range(TIMES):
            connection = await stack.enter_async_context(await gateway.connect())
            await connection.send(post_request({"stream": True}))
            await connection.read_some()
        # `running` shuts it down once nothing runs; here something does.
        await gateway.server.drain()
        for exchange in backend.exchanges:
            await exchange.peer_closed.wait()
        assert gateway.metric("headrace_refusals_total", reason="shutting_down") == TIMES
        assert said_of(gateway) == UNTOUCHED


async def test_b116_looking_at_health_asks_engines_for_nothing_but_cheap_gets() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate), record_probes=True) as backend,
        running(backend, window=2, probes=OFTEN) as gateway,
        AsyncExitStack() as stack,
    ):

        def generations() -> int:
            return sum(one.request.method != "GET" for one in backend.exchanges)

        held: list[client.Connection] = []
        for load in (0, 4):  # idle, then full with two that wait
            held += [await stack.enter_async_context(await gateway.begin({})) for _ in range(load)]
            await until(lambda load=load: gateway.gateway.requests_in_flight == load)  # type: ignore[misc]
            await until(lambda load=load: generations() == min(load, 2))  # type: ignore[misc]
            seen = len(backend.exchanges)
            for _ in range(10):
                answers = [(await gateway.get(target)).status for target in OWN_PAGES]
                assert answers == [200] * len(OWN_PAGES)
            await backend.until(lambda seen=seen: len(backend.exchanges) > seen + 3)  # type: ignore[misc]
            assert generations() == min(load, 2)
        assert gateway.metric("headrace_requests_total") == 0
        gate.set()
        for connection in held:
            await connection.read_answer()
        assert gateway.metric("headrace_requests_total") == 4


async def test_b117_where_every_call_fails_and_probes_are_well_readiness_turns_red_and_comes_back() -> None:
    broken = True

    def script(_: Request) -> Script:
        return json_script({}, status=500) if broken else json_script({"choices": []})

    breaker = BreakerSettings(open_seconds=0.05, max_open_seconds=0.05, canary_timeout_seconds=5)
    async with Backend(script) as one, Backend(script) as two, running(one, two, breaker=breaker) as gateway:
        for number in range(60):
            asked = {"model": "m", "messages": [{"role": "user", "content": f"{number} " + "word " * number}]}
            assert (await gateway.post(asked)).status == 500
            if (await gateway.get("/readyz")).status == 503:
                break
        answer = await gateway.get("/readyz")
        assert (answer.status, json.loads(answer.body)) == (503, {"status": "every backend fails"})
        assert (await gateway.get("/healthz")).status == 200
        broken = False
        await until(lambda: not all(map(gateway.gateway.router.circuits.fails, gateway.gateway.router.fleet)))
        assert (await gateway.get("/readyz")).status == 200, "canaries have found out"
        assert (await gateway.post({"model": "m"})).status == 200


async def test_b117_engines_that_are_silently_gone_turn_readiness_red_and_not_liveness() -> None:
    async with Backend() as one, Backend() as two, running(one, two, probes=OFTEN) as gateway:
        assert (await gateway.get("/readyz")).status == 200
        stuck = Gate()
        for backend in (one, two):
            backend.script = lambda _: Script(before_head=stuck)
            for path in backend.probes:
                backend.probes[path] = Script(before_head=stuck)
        await until(lambda: not any(gateway.present()))
        assert (await gateway.get("/readyz")).status == 503
        assert (await gateway.get("/health")).status == 503
        assert (await gateway.get("/v1/models")).status == 503
        assert (await gateway.get("/healthz")).status == 200
        refused = await gateway.post({})
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (503, 503)
        stuck.set()
