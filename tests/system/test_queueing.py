"""Windows and the line before them: who runs, who waits, who is turned away, and how long a slot is held."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack

import pytest

from gateway.settings import (
    BackendSettings,
    PoolSettings,
    QueueSettings,
    ServerSettings,
    Settings,
    WindowSettings,
)
from tests import client
from tests.backend import Backend, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import Running, post_request, running, running_with

STREAM = b'{"stream":true}'
EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'


def held(gate: Gate) -> Backend:
    """Each answer waits for the gate and then repeats its request."""
    return Backend(lambda request: Script(before_head=gate, chunks=[request.body]))


async def in_line(gateway: Running, count: int) -> None:
    await until(lambda: gateway.gateway.router.waiting == count)


def route(head: client.AnswerHead) -> dict[str, str]:
    parts = (head.value(b"x-headrace-route") or b"").decode().split(";")
    return dict(part.split("=", 1) for part in parts)


async def test_a_full_window_makes_the_next_request_wait_and_the_route_says_how_long() -> None:
    gate = Gate()
    async with (
        held(gate) as backend,
        running(backend, window=1) as gateway,
        await gateway.begin({"n": 0}) as first,
        await gateway.begin({"n": 1}) as second,
    ):
        await in_line(gateway, 1)
        waited_from = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > waited_from + 0.02)
        assert len(backend.exchanges) == 1
        gate.set()
        assert route((await first.read_answer()).head)["queue_ms"] == "0"
        assert int(route((await second.read_answer()).head)["queue_ms"]) >= 20


async def test_the_line_is_served_in_the_order_of_arrival_even_when_others_come_later() -> None:
    gates = [Gate() for _ in range(12)]

    def script(request: Request) -> Script:
        return Script(before_head=gates[request.json()["n"]])

    async with Backend(script) as backend, running(backend, window=2) as gateway, AsyncExitStack() as stack:
        for number in range(12):
            await stack.enter_async_context(await gateway.begin({"n": number}))
            await until(lambda number=number: gateway.gateway.requests_in_flight == number + 1)  # type: ignore[misc]
        for number in range(12):
            gates[number].set()
            await backend.until(lambda number=number: len(backend.exchanges) == min(number + 3, 12))  # type: ignore[misc]
        assert [exchange.request.json()["n"] for exchange in backend.exchanges] == list(range(12))


async def test_beyond_the_line_a_request_is_refused_at_once() -> None:
    gate = Gate()
    queue = QueueSettings(max_waiting=2)
    async with held(gate) as backend, running(backend, window=1, queue=queue) as gateway:
        async with AsyncExitStack() as stack:
            inside = [
                await stack.enter_async_context(await gateway.begin({"n": number})) for number in range(3)
            ]
            await in_line(gateway, 2)
            for body in (b"{}", STREAM):
                refused = await gateway.post(body)
                assert (refused.status, refused.value(b"x-headrace-reason")) == (503, b"queue_full")
                assert json.loads(refused.body)["error"]["code"] == 503 and refused.value(b"retry-after")
            gate.set()
            for number, connection in enumerate(inside):
                assert json.loads((await connection.read_answer()).body) == {"n": number}
        assert len(backend.exchanges) == 3
        assert gateway.metric("headrace_refusals_total", reason="queue_full") == 2


@pytest.mark.parametrize("body", [b"{}", STREAM])
async def test_a_wait_that_takes_too_long_ends_with_504_and_gives_its_place_up(body: bytes) -> None:
    gate = Gate()
    queue = QueueSettings(max_wait_seconds=0.05)
    async with held(gate) as backend, running(backend, window=1, queue=queue) as gateway:
        async with await gateway.begin({"n": 0}) as first:
            await backend.exchange()
            late = await gateway.post(body)
            assert (late.status, late.value(b"x-headrace-reason")) == (504, b"queue_timeout")
            assert gateway.gateway.router.waiting == 0 and len(backend.exchanges) == 1
            gate.set()
            assert (await first.read_answer()).status == 200
        assert (await gateway.post({})).status == 200


async def test_a_slot_is_held_to_the_last_byte_and_not_only_to_the_headers() -> None:
    open_now, most = [0], [0]
    gates: list[Gate] = []

    def script(_: Request) -> Script:
        gate = Gate()
        gates.append(gate)
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        return sse_script(EVENT, gate, b"[DONE]")

    async with Backend(script) as backend, running(backend, window=5) as gateway, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await gateway.begin(STREAM)) for _ in range(20)]
        await in_line(gateway, 15)
        readers = [asyncio.create_task(connection.read_answer()) for connection in clients]
        for ended in range(20):
            await backend.until(lambda ended=ended: len(gates) == min(ended + 5, 20))  # type: ignore[misc]
            assert sum(gateway.in_flight()) <= 5
            open_now[0] -= 1
            gates[ended].set()
        for reader in readers:
            answer = await reader
            assert answer.complete and answer.body.endswith(b"data: [DONE]\n\n")
    assert most[0] == 5


async def test_the_line_goes_on_whatever_ended_the_one_in_front() -> None:
    """An answer, an engine's error, a cut, and a client that leaves: each frees its slot for the next."""
    endings = [
        json_script({}),
        json_script({}, status=400),
        json_script({}, status=500),
        Script(before_head=Gate()),
    ]
    gate = Gate()

    def script(request: Request) -> Script:
        number: int = request.json()["n"]
        return Script(before_head=gate) if number == 0 else endings[number - 1]

    async with Backend(script) as backend, running(backend, window=1) as gateway, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(await gateway.begin({"n": number})) for number in range(5)]
        await in_line(gateway, 4)
        gate.set()
        statuses = [(await connection.read_answer()).status for connection in crowd[:4]]
        assert statuses == [200, 200, 400, 500]
        await backend.exchange(4)
        crowd[4].close()
        await until(gateway.is_quiet)
        backend.script = lambda _: json_script({})
        assert (await gateway.post({})).status == 200


async def test_a_full_model_does_not_hold_up_the_line_of_another() -> None:
    gate = Gate()
    full = Backend(lambda _: Script(before_head=gate), models=["a"])
    async with (
        full,
        Backend(models=["b"]) as free,
        running(full, free, window=1) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = [await stack.enter_async_context(await gateway.begin({"model": "a"})) for _ in range(5)]
        await in_line(gateway, 4)
        for _ in range(5):
            assert (await gateway.post({"model": "b"})).status == 200
        gate.set()
        assert [(await connection.read_answer()).status for connection in crowd] == [200] * 5


async def test_who_waits_when_the_last_backend_goes_is_refused_and_does_not_hang() -> None:
    async with (
        Backend(lambda _: Script(before_head=Gate())) as only,
        running(only, window=1) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = [await stack.enter_async_context(await gateway.begin({})) for _ in range(3)]
        await in_line(gateway, 2)
        await only.stop()
        answers = [await connection.read_answer() for connection in crowd]
        assert all(answer.status in (502, 503) for answer in answers)
        assert all(answer.value(b"x-headrace-reason") for answer in answers)


async def test_equal_backends_share_a_sequence_of_requests_evenly() -> None:
    async with Backend() as a, Backend() as b, Backend() as c, running(a, b, c) as gateway:
        for _ in range(300):
            await gateway.post({})
        assert [len(backend.exchanges) for backend in (a, b, c)] == [100, 100, 100]


async def test_equal_backends_share_sessions_that_come_back_about_evenly() -> None:
    """Each goes where it went before; where that is at first is drawn by its name, so that a restart moves none."""
    draw = random.Random(75)
    async with (
        Backend() as a,
        Backend() as b,
        Backend() as c,
        running(a, b, c) as gateway,
        await gateway.connect() as connection,
    ):
        for _ in range(900):
            session = (b"X-Headrace-Session", b"s%d" % draw.randrange(300))
            await connection.send(post_request({"messages": []}, headers=[session]))
            assert (await connection.read_answer()).status == 200
            assert gateway.metric("headrace_backend_in_flight") == 0
        assert gateway.metric("headrace_placements_total", by="session") > 500
        counts = [len(backend.exchanges) for backend in (a, b, c)]
        assert sum(counts) == 900 and min(counts) >= 225 and max(counts) <= 378


async def test_the_backend_with_the_smallest_share_of_its_window_in_use_is_next() -> None:
    gate = Gate()
    async with held(gate) as small, held(gate) as large:
        pools = tuple(
            PoolSettings(
                name=name, window=WindowSettings(max=most), backends=(BackendSettings(url=backend.url),)
            )
            for name, most, backend in (("small", 2, small), ("large", 6, large))
        )
        async with (
            running_with(Settings(pools=pools, server=ServerSettings(port=0))) as gateway,
            AsyncExitStack() as stack,
        ):
            for _ in range(9):
                await stack.enter_async_context(await gateway.begin({}))
            await in_line(gateway, 1)
            assert gateway.in_flight() == [2, 6]
            gate.set()


async def test_counts_stay_right_while_a_backend_goes_and_comes_back_under_running_streams() -> None:
    gates: list[Gate] = []

    def script(_: Request) -> Script:
        gates.append(Gate())
        return sse_script(EVENT, gates[-1], b"[DONE]")

    async with (
        Backend(script) as a,
        Backend(script) as b,
        running(a, b) as gateway,
        AsyncExitStack() as stack,
    ):

        async def ten_more() -> list[client.Connection]:
            fresh = [await stack.enter_async_context(await gateway.begin(STREAM)) for _ in range(10)]
            for connection in fresh:
                await connection.read_head()
            return fresh

        await ten_more()
        assert gateway.in_flight() == [5, 5]
        router = gateway.gateway.router
        first = next(iter(router.fleet))
        for healthy in (False, True):  # as its probe would report it
            router.engines.probed(first.id, healthy, True, asyncio.get_running_loop().time())
            assert gateway.present() == [healthy, True]
            assert gateway.in_flight() == [5, 5], "leases belong to the requests, not to the name"
        await ten_more()
        assert gateway.in_flight() == [10, 10]
        for gate in gates:
            gate.set()
        await until(lambda: gateway.in_flight() == [0, 0])


async def test_a_reloaded_configuration_with_a_wider_window_lets_the_line_in() -> None:
    gate = Gate()
    async with held(gate) as backend, running(backend, window=1) as gateway, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(await gateway.begin({})) for _ in range(4)]
        await in_line(gateway, 3)
        settings = gateway.gateway.settings
        pool = settings.pools[0]
        wider = PoolSettings(name=pool.name, window=WindowSettings(max=3), backends=pool.backends)
        gateway.gateway.configure(Settings(pools=(wider,), server=settings.server))
        await backend.until(lambda: len(backend.exchanges) == 3)
        await in_line(gateway, 1)
        gate.set()
        assert [(await connection.read_answer()).status for connection in crowd] == [200] * 4
