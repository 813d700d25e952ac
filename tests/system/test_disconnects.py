"""A client that leaves, however and whenever it does, ends the engine's work for it and gives its slot back.

No test measures time: the backend's view of its connection is an event, and a bound of many seconds is there to fail a hang only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from gateway.settings import ServerSettings, TimeoutSettings, UpstreamSettings
from policies.cost import OUTPUT_WEIGHT
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import CHAT, JSON, Running, running
from tests.script import SSE

Leave = Callable[[client.Connection], None]
LEAVE: dict[str, Leave] = {
    "close": client.Connection.close,
    "reset": client.Connection.reset,
    "half-close": client.Connection.shut_write,
}
EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'

ways = pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE.keys())


def silent(_: Request) -> Script:
    return Script(before_head=Gate())


async def aborted(gateway: Running, backend: Backend, count: int = 1) -> None:
    """The engine has seen its connection close within 2 s of now, the slot is back, and it was counted as the client's doing."""
    left_at = asyncio.get_running_loop().time()
    for exchange in backend.exchanges:
        async with asyncio.timeout(client.WAIT_SECONDS):
            await exchange.peer_closed.wait()
        assert exchange.closed_at - left_at < 2.0
    await until(gateway.is_quiet)
    assert gateway.metric("headrace_aborts_total", cause="client_left") == count
    assert gateway.metric("headrace_aborts_total") == count
    assert all(gateway.present())
    assert gateway.metric("headrace_refusals_total") == 0


ROUTES = [
    CHAT,
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
    "/v1/rerank",
    "/v1/something/new",
    "/tokenize",
    "/generate",
]


@ways
async def test_a_client_that_leaves_a_plain_call_ends_it_on_every_route(leave: Leave) -> None:
    async with Backend(silent) as backend, running(backend) as gateway:
        for number, target in enumerate(ROUTES, 1):
            async with await gateway.begin(b"{}", target) as connection:
                exchange = await backend.exchange(number - 1)
                await exchange.body_complete.wait()
                left_at = asyncio.get_running_loop().time()
                leave(connection)
                await exchange.peer_closed.wait()
                assert exchange.closed_at - left_at < 2.0, "twenty times what it is to be"
        await aborted(gateway, backend, len(ROUTES))


async def test_a_get_that_is_left_ends_too() -> None:
    async with Backend(silent) as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(client.request("GET", "/v1/responses/x"))
        await backend.exchange()
        connection.close()
        await aborted(gateway, backend)


@ways
async def test_a_client_that_leaves_before_the_first_event_ends_the_prefill(leave: Leave) -> None:
    async with (
        Backend(lambda _: sse_script(Gate())) as backend,
        running(backend) as gateway,
        await gateway.begin(b'{"stream":true}') as connection,
    ):
        await connection.read_head()  # vLLM sends it while the request still waits in its queue
        leave(connection)
        await aborted(gateway, backend)


@ways
async def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_it(leave: Leave) -> None:
    async with (
        Backend(lambda _: sse_script(EVENT, EVENT, Gate())) as backend,
        running(backend) as gateway,
        await gateway.begin(b'{"stream":true}') as connection,
    ):
        head = await connection.read_head()
        pieces = connection.pieces(head)
        await anext(pieces)
        leave(connection)
        await aborted(gateway, backend)


@ways
async def test_a_client_that_leaves_a_stream_too_large_for_all_buffers_ends_it(leave: Leave) -> None:
    def endless(_: Request) -> Script:
        event = b"data: " + EVENT.replace(b"x", b"x" * 50_000) + b"\n\n"
        return Script(headers=[SSE], chunks=(event for _ in range(10_000)), framing=Framing.CHUNKED)

    async with Backend(endless, send_buffer_bytes=4096) as backend, running(backend) as gateway:
        async with await gateway.connect(receive_buffer_bytes=4096) as connection:
            await connection.send(client.request("POST", CHAT, [JSON], b'{"stream":true}'))
            await connection.read_some()
            leave(connection)
            await aborted(gateway, backend)
        assert backend.exchanges[0].bytes_sent < 20_000_000


async def test_cors_does_not_hide_a_clients_leaving() -> None:
    server = ServerSettings(port=0, cors_origins=("*",))
    async with Backend(silent) as backend, running(backend, server=server) as gateway:
        connection = await gateway.begin(b"{}", headers=[(b"Origin", b"https://a.example")])
        await backend.exchange()
        connection.close()
        await aborted(gateway, backend)


async def test_a_client_that_leaves_while_it_waits_for_a_slot_leaves_the_queue() -> None:
    gate = Gate()

    def script(_: Request) -> Script:
        return Script(before_head=gate, chunks=[b"ok"])

    async with Backend(script) as backend, running(backend, window=1) as gateway:
        running_one = await gateway.begin(b"{}")
        await backend.exchange()
        waiting = [await gateway.begin(b"{}") for _ in range(3)]
        await until(lambda: gateway.gateway.router.waiting == 3)
        waiting[0].close()
        waiting[1].reset()
        await until(lambda: gateway.gateway.router.waiting == 1)
        gate.set()
        assert (await running_one.read_answer()).body == b"ok"
        assert (await waiting[2].read_answer()).body == b"ok"
        assert len(backend.exchanges) == 2
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 2
        running_one.close()
        waiting[2].close()


async def test_a_client_that_leaves_during_its_upload_reaches_no_engine() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for leave in (client.Connection.close, client.Connection.reset):
            async with await gateway.connect() as connection:
                head = client.request("POST", CHAT, [JSON, (b"Content-Length", b"100000")])
                await connection.send(head + b"{" + b" " * 50_000)
                await until(lambda: gateway.gateway.requests_in_flight == 1)
                leave(connection)
            await until(lambda: gateway.gateway.requests_in_flight == 0)
        assert backend.exchanges == []
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 2


async def test_a_client_that_leaves_while_a_large_body_goes_to_the_engine_ends_that() -> None:
    body = b'{"a":"' + b"x" * 20_000_000 + b'"}'

    def stop(request: Request) -> Script | None:
        return Script(ending=Ending.STOP_READING, framing=Framing.RAW) if request.method == "POST" else None

    async with Backend(on_head=stop) as backend, running(backend) as gateway:
        async with await gateway.begin(body) as connection:
            await backend.exchange()
            connection.close()
            await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 1
        await backend.stop()  # it does not read, so it cannot see by itself that it was left


async def test_clients_that_leave_at_once_wherever_their_request_is_by_then_cost_no_slot() -> None:
    async with Backend(silent) as backend, running(backend, probed=False) as gateway:
        for _ in range(50):
            (await gateway.begin(b"{}")).reset()
        await until(lambda: gateway.metric("headrace_requests_total") == 50)
        await aborted(gateway, backend, 50)


async def test_a_client_that_closes_right_after_done_has_had_a_success() -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    async with (
        Backend(lambda _: sse_script(EVENT, usage, b"[DONE]", Gate())) as backend,
        running(backend) as gateway,
    ):
        for number in range(100):
            connection = await gateway.begin(b'{"stream":true}')
            seen = b""
            while b"data: [DONE]\n" not in seen:
                seen += await connection.read_some()
            LEAVE["reset" if number % 2 else "close"](connection)
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total") == 0
        assert gateway.metric("headrace_cut_answers_total") == 0
        assert gateway.metric("headrace_requests_total", status="2xx") == 100
        assert gateway.metric("headrace_tokens_total", kind="completion") == 200


async def test_clients_that_do_not_read_are_cut_off_and_hold_little_memory() -> None:
    def flood(_: Request) -> Script:
        def events() -> list[bytes]:
            return [b"data: " + EVENT.replace(b"x", b"x" * 1000) + b"\n\n"] * 50_000

        return Script(headers=[SSE], chunks=events(), framing=Framing.CHUNKED)

    server = ServerSettings(port=0, stall_seconds=0.3)
    async with (
        Backend(flood, send_buffer_bytes=4096) as backend,
        running(backend, window=4, server=server) as gateway,
    ):
        stalled = [await gateway.connect(receive_buffer_bytes=4096) for _ in range(4)]
        for connection in stalled:
            await connection.send(client.request("POST", CHAT, [JSON], b'{"stream":true}'))
        for number in range(4):
            # 50 MB were to come; what left the backend is in the kernel's buffers or was bounded here.
            exchange = await backend.exchange(number)
            await exchange.peer_closed.wait()
            assert exchange.bytes_sent < 8_000_000
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total", cause="client_stalled") == 4
        backend.script = lambda _: json_script({"next": True})
        assert (await gateway.post({})).status == 200
        for connection in stalled:
            connection.close()


async def test_a_slow_reader_is_not_a_stalled_one_and_its_engine_is_not_silent() -> None:
    body = b"data: " + EVENT.replace(b"x", b"x" * 60_000) + b"\n\n"

    def script(_: Request) -> Script:
        return Script(headers=[SSE], chunks=[body] * 60 + [b"data: [DONE]\n\n"], framing=Framing.CHUNKED)

    limits = TimeoutSettings(gap_seconds=0.1, first_byte_seconds=5)
    async with (
        Backend(script, send_buffer_bytes=4096) as backend,
        running(backend, timeouts=limits) as gateway,
        await gateway.connect(receive_buffer_bytes=4096) as connection,
    ):
        await connection.send(client.request("POST", CHAT, [JSON], b'{"stream":true}'))
        head = await connection.read_head()
        exchange = await backend.exchange()
        quiet_since = [exchange.bytes_sent, asyncio.get_running_loop().time()]

        def is_blocked_for_long() -> bool:
            """Nothing moved for three times the gap that an engine may make."""
            now = asyncio.get_running_loop().time()
            if exchange.bytes_sent != quiet_since[0]:
                quiet_since[:] = [exchange.bytes_sent, now]
            return now - quiet_since[1] > 0.3

        await until(is_blocked_for_long)
        answer = await connection.read_body(head)
        assert answer.complete and len(answer.body) == 60 * len(body) + 14


@pytest.mark.parametrize("events", [0, 7])
async def test_a_client_that_repeats_a_cut_call_has_one_running_at_a_time(events: int) -> None:
    """And its tenant pays for what came out, not for the 4000 tokens that were asked for each time."""
    body = {"max_tokens": 4000, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    times = 5
    gates = [Gate() for _ in range(events)]

    def script(request: Request) -> Script:
        if not events:
            return silent(request)
        steps: list[bytes | Gate] = []
        for gate in gates:
            gate.clear()
            steps += [EVENT, gate]
        return sse_script(*steps)

    async with Backend(script) as backend, running(backend, window=8) as gateway:

        def charged() -> float:
            return gateway.metric("headrace_charged_weighted_tokens_total")

        for number in range(times):
            connection = await gateway.begin(body)
            exchange = await backend.exchange(number)
            came = b""
            for event, gate in enumerate(gates, 1):
                while came.count(b"data: ") < event:
                    came += await connection.read_some()
                if event < events:
                    gate.set()  # one after the other: what comes at once counts as one
            left_at = asyncio.get_running_loop().time()
            connection.close()
            await exchange.peer_closed.wait()
            assert exchange.closed_at - left_at < 2.0
            await until(lambda: gateway.in_flight() == [0])
        assert charged() < times * (100 + 2 * OUTPUT_WEIGHT * events if events else 1)
        assert charged() >= times * OUTPUT_WEIGHT * events
        backend.script = lambda _: json_script({"usage": {"prompt_tokens": 9, "completion_tokens": 4000}})
        assert (await gateway.post(body)).status == 200
        assert charged() > 4000, "a whole one is charged, so the count is of such calls"


async def test_cancelling_with_a_full_pool_leaves_no_dead_connection_behind() -> None:
    """400 rounds, as it was reported; clients leave 0 to 4 ms after they have asked, on connections of their own."""
    upstream = UpstreamSettings(max_connections=5)
    draw = random.Random(59)
    loop = asyncio.get_running_loop()
    async with Backend(silent) as backend, running(backend, upstream=upstream) as gateway:
        for _ in range(400):
            gone = asyncio.Event()
            crowd = [await gateway.begin(b"{}") for _ in range(12)]
            for connection in crowd:
                loop.call_later(draw.choice([0.0, draw.uniform(0, 0.004)]), connection.close)
            loop.call_later(0.004, gone.set)
            await gone.wait()
        await until(gateway.is_quiet)
        assert sum(exchange.peer_closed.is_set() for exchange in backend.exchanges) > 400, "many got through"
        backend.script = lambda _: json_script({})
        began = loop.time()
        for _ in range(5):
            assert (await gateway.post({})).status == 200
        assert loop.time() - began < 1.0
        assert gateway.in_flight() == [0]


async def test_fifty_aborts_say_nothing_about_the_backend() -> None:
    async with Backend(lambda _: sse_script(EVENT, Gate())) as backend, running(backend) as gateway:
        for number in range(50):
            connection = await gateway.begin(b'{"stream":true}')
            if number % 2:
                await connection.read_head()
            connection.close()
        await until(lambda: gateway.metric("headrace_aborts_total", cause="client_left") == 50)
        assert gateway.present() == [True]
        backend.script = lambda _: json_script({})
        assert (await gateway.post({})).status == 200


FATES: dict[str, Callable[[random.Random], Script]] = {
    "plain": lambda draw: json_script({"a": "x" * draw.choice([1, 100_000])}),
    "stream": lambda draw: sse_script(*[EVENT] * draw.randrange(20), b"[DONE]"),
    "cut": lambda draw: sse_script(*[EVENT] * draw.randrange(4), ending=Ending.CUT),
    "reset": lambda draw: sse_script(*[EVENT] * draw.randrange(4), ending=Ending.RESET),
    "hang": lambda draw: sse_script(*[EVENT] * draw.randrange(4), ending=Ending.SILENT),
    "never": lambda draw: Script(before_head=Gate()),
    "dead": lambda draw: Script(framing=Framing.RAW, ending=draw.choice([Ending.CUT, Ending.RESET])),
    "full": lambda draw: json_script({}, status=503),
}


async def one_client(gateway: Running, draw: random.Random) -> None:
    fate = draw.choice(list(FATES)).encode()
    stream = draw.random() < 0.6
    raw = client.request("POST", CHAT, [JSON, (b"X-Fate", fate)], b'{"stream":true}' if stream else b"{}")
    async with await gateway.connect(receive_buffer_bytes=draw.choice([0, 4096])) as connection:
        is_whole = draw.random() < 0.85
        await connection.send(raw if is_whole else raw[: draw.randrange(len(raw))])
        for _ in range(draw.randrange(40)):
            await asyncio.sleep(0)
        patience = draw.randrange(3) if is_whole and fate not in (b"hang", b"never") else 0
        if patience == 1:
            await connection.read_some()
        elif patience == 2:
            with contextlib.suppress(EOFError):
                await connection.read_answer()
        if draw.random() < 0.5:
            connection.reset()


async def test_a_thousand_random_endings_leak_nothing() -> None:
    draw = random.Random(20)

    def script(request: Request) -> Script:
        # One without a fate is a canary: so many that go wrong may open a circuit.
        return FATES[(request.value(b"x-fate") or b"stream").decode()](draw)

    async with Backend(script) as one, Backend(script) as two:
        server = ServerSettings(port=0, header_seconds=5, stall_seconds=5)
        async with running(one, two, window=20, server=server) as gateway:
            for _ in range(25):
                async with asyncio.timeout(client.WAIT_SECONDS):
                    await asyncio.gather(*(one_client(gateway, draw) for _ in range(40)))
            await until(gateway.is_quiet)
            one.script = two.script = lambda _: json_script({"still": "well"})
            assert (await gateway.post({})).status == 200
        # `running` has counted requests, leases, connections and tasks.
