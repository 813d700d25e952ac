"""The line before the engines: who is told what while it is full, whose share is whose, and what counts as load."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from hashlib import sha256

import pytest

from gateway.breaker_settings import BreakerSettings
from gateway.settings import (
    AnonymousSettings,
    ProbeSettings,
    QueueSettings,
    TenantSettings,
    TimeoutSettings,
)
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway_process import free_port
from tests.running import Running, running
from tests.system.crowd import Crowd, Header, Held

NEVER_AGAIN = ProbeSettings(interval_seconds=3600)
EVENT = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'


def told(answer: client.Answer) -> tuple[int, bytes | None]:
    error = json.loads(answer.body)["error"]
    assert error["code"] == answer.status and error["message"]
    assert int(answer.value(b"retry-after") or b"0") >= 1
    return answer.status, answer.value(b"x-headrace-reason")


async def test_b071_a_full_line_a_wait_too_long_and_an_empty_fleet_are_told_apart() -> None:
    """The statuses are those of the public contract: 503 where the fleet is short, 504 where an admitted request ran out of time."""
    full = QueueSettings(max_waiting=0)
    short = QueueSettings(max_wait_seconds=0.05)
    silent = Script(before_head=Gate())
    for queue, expected in ((full, (503, b"queue_full")), (short, (504, b"queue_timeout"))):
        async with (
            Backend(lambda _: silent) as backend,
            running(backend, window=1, queue=queue) as gateway,
            await gateway.begin({}),
        ):
            await backend.exchange()
            assert told(await gateway.post({})) == expected
    for queue in (full, short):
        gone = f"http://127.0.0.1:{free_port()}"
        async with running(gone, window=1, queue=queue, probes=NEVER_AGAIN) as gateway:
            assert told(await gateway.post({})) == (503, b"no_backend")


ODD_TENANTS = [b"", b"x" * 10_240, b"a b", "ü".encode(), b"x%0ay", b"a:b", b"\xff\xfe", b"shop\t"]


@pytest.mark.parametrize(
    "name", [b"x-headrace-tenant", b"x-llm-d-inference-fairness-id", b"x-headrace-session"]
)
async def test_b080_no_name_that_a_client_gives_makes_its_request_fail(name: bytes) -> None:
    tenants = (TenantSettings(name="shop"),)
    trusting = AnonymousSettings(trust_headers=True)
    async with Backend() as backend, running(backend, tenants=tenants, anonymous=trusting) as gateway:
        for value in ODD_TENANTS:
            answer = await gateway.post({"messages": []}, headers=[(name, value)])
            assert answer.status in (200, 400), (value, answer.body)
            if answer.status == 200:
                got = backend.exchanges.pop().request
                own = {one for one, _ in got.headers if one.startswith(b"x-headrace")}
                assert not own
                for one, said in got.headers:
                    assert b"\r" not in said and b"\n" not in said and one.strip() == one
        tenant_labels = {
            sample.labels["tenant"]
            for family in gateway.gateway.telemetry.registry.collect()
            for sample in family.samples
            if "tenant" in sample.labels
        }
        assert tenant_labels <= {"anonymous", "shop"}


WAYS = {
    "whole": json_script({}),
    "stream": sse_script(EVENT, b"[DONE]"),
    "refused": json_script({}, status=400),
    "cut": sse_script(EVENT, ending=Ending.CUT),
    "reset": sse_script(EVENT, ending=Ending.RESET),
    "dead": Script(framing=Framing.RAW, ending=Ending.CUT),
    "silent": sse_script(EVENT, ending=Ending.SILENT),
    "never": Script(before_head=Gate()),
    "left": Script(before_head=Gate()),
}


async def end_in_each_way(gateway: Running, backend: Backend) -> int:
    count = 0
    for name, script in WAYS.items():
        for stream in (False, True):
            backend.script = lambda _, script=script: script  # type: ignore[misc]
            before = len(backend.exchanges)
            connection = await gateway.begin({"model": "only-a", "stream": stream})
            exchange = await backend.exchange(before)
            if name != "left":
                await connection.read_answer()
            connection.close()
            if name == "left":
                await exchange.peer_closed.wait()
            count += 1
    return count


async def test_b081_what_has_ended_in_whatever_way_is_no_load() -> None:
    gate = Gate()
    limits = TimeoutSettings(first_byte_seconds=0.05, gap_seconds=0.05)
    off = BreakerSettings(enabled=False)
    async with (
        Backend(models=["m", "only-a"]) as a,
        Backend(models=["m"]) as b,
        running(a, b, timeouts=limits, probes=NEVER_AGAIN, breaker=off) as gateway,
    ):
        for _ in range(2):
            await end_in_each_way(gateway, a)
        await until(gateway.is_quiet)
        assert gateway.in_flight() == [0, 0]
        patient = TimeoutSettings()
        settings = gateway.gateway.settings
        gateway.gateway.configure(
            type(settings)(
                pools=settings.pools,
                server=settings.server,
                probes=NEVER_AGAIN,
                breaker=off,
                timeouts=patient,
            )
        )
        a.script = b.script = lambda _: Script(before_head=gate, chunks=[b"{}"])
        before = len(a.exchanges)
        async with AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(await gateway.begin({"model": "m"})) for _ in range(50)]
            await until(lambda: sum(gateway.in_flight()) == 50)
            await until(lambda: len(a.exchanges) - before + len(b.exchanges) == 50)
            assert 20 <= len(b.exchanges) <= 30
            gate.set()
            for connection in crowd:
                assert (await connection.read_answer()).status == 200


def shares_of(name: bytes) -> Header:
    return (b"x-headrace-tenant", name)


async def test_b083_tenants_without_keys_have_their_shares_by_a_header_that_is_trusted() -> None:
    tenants = (TenantSettings(name="loud"), TenantSettings(name="quiet"))
    trusting = AnonymousSettings(trust_headers=True)
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, tenants=tenants, anonymous=trusting) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        for number in range(1, 41):
            await crowd.send(number, shares_of(b"loud"))
        for number in range(101, 105):
            await crowd.send(number, shares_of(b"quiet"))
        await held.serve(11)
        assert sum(number > 100 for number in held.order[1:11]) >= 4, "ten times the load is no larger share"
        held.let(*range(1, 41), *range(101, 105))
        for number in (*range(1, 41), *range(101, 105)):
            assert (await crowd.answer(number)).status == 200


async def test_b083_anonymous_clients_are_one_tenant_whatever_user_they_name() -> None:
    async with Backend() as backend, running(backend, window=1) as gateway:
        answers = await asyncio.gather(*[gateway.post({"user": f"u{n}"}) for n in range(30)])
        assert [answer.status for answer in answers] == [200] * 30
        state = json.loads((await gateway.get("/admin/state")).body)
        assert state["flows_waiting"] == 0
        assert gateway.metric("headrace_refusals_total") == 0


async def test_b147_a_client_that_names_itself_anew_each_time_stays_one_flow_in_its_own_lane() -> None:
    keyed = TenantSettings(name="shop", key_sha256=(sha256(b"shop-key").hexdigest(),))
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, tenants=(keyed, TenantSettings(name="bank"))) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        key = (b"Authorization", b"Bearer shop-key")
        claims: list[Header] = [(b"x-headrace-lane", b"emergency"), (b"x-priority", b"emergency")]
        await crowd.send(0, key)
        for number in range(1, 21):
            named = b"bank" if number % 2 else b"tenant-%d" % number
            await crowd.send(number, key, (b"x-headrace-tenant", named), shares_of(named), *claims)
        state = json.loads((await gateway.get("/admin/state")).body)
        assert (state["waiting"], state["flows_waiting"]) == (20, 1)
        held.let(*range(21))
        for number in range(1, 21):
            assert (await crowd.route(number))["lane"] != "emergency"
        assert gateway.metric("headrace_charged_weighted_tokens_total", tenant="bank") == 0
        assert gateway.metric("headrace_charged_weighted_tokens_total", tenant="shop") > 0
