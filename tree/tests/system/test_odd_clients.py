"""Clients that do what is allowed and rarely done, and engines that fail at the rarest moment."""

from __future__ import annotations

import gzip
from functools import partial

from gateway.settings import ProbeSettings, ServerSettings
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, sse_script
from tests.emulator.running import until
from tests.running import CHAT, JSON, running

SSE = (b"Content-Type", b"text/event-stream")
LONG = b'{"messages":"' + b"x" * 100_000 + b'"}'
NEVER_AGAIN = ProbeSettings(interval_seconds=3600)
FINISH = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}\n\n'


def _always(script: Script, _: Request) -> Script:
    return script


async def test_a_clients_leaving_is_noticed_after_a_body_that_filled_its_socket() -> None:
    """One write of 100 KB pauses the socket's reading; it has to go on once the body is taken."""
    async with Backend(lambda _: Script(before_head=Gate())) as backend, running(backend) as gateway:
        async with await gateway.begin(LONG):
            exchange = await backend.exchange()
        await exchange.peer_closed.wait()
        await until(lambda: gateway.metric("headrace_requests_in_flight") == 0)
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 1


async def test_an_offer_of_http_2_is_declined_and_its_request_answered_whole() -> None:
    """The parser takes a request with `Upgrade` for one without a body; its body must not become the next request."""
    offer = [
        JSON,
        (b"Connection", b"Upgrade, HTTP2-Settings"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAMA"),
    ]
    async with Backend(lambda request: Script(chunks=[request.body])) as backend, running(backend) as gateway:
        raw = client.request("POST", CHAT, offer, b'{"n":1}')
        head, _, body = raw.partition(b"\r\n\r\n")
        for parts in ([raw], [head + b"\r\n\r\n", body], [raw[:-3], raw[-3:]]):
            async with await gateway.connect() as connection:
                for part in parts:
                    await connection.send(part)
                assert (await connection.read_answer()).body == b'{"n":1}'
                await connection.send(client.request("POST", CHAT, [JSON], b'{"n":2}'))
                assert (await connection.read_answer()).body == b'{"n":2}'
        names = {name.lower() for exchange in backend.exchanges for name, _ in exchange.request.headers}
        assert not names & {b"upgrade", b"http2-settings"}
        assert len(backend.exchanges) == 6


async def test_what_was_sent_of_a_cut_stream_is_not_followed_by_another_engines_answer() -> None:
    """The last event is held for the one after it; once it has left, the request is not repeated."""
    first = Script(headers=[SSE], chunks=[FINISH], framing=Framing.CHUNKED, ending=Ending.CUT)
    unfinished = Script(
        headers=[SSE], chunks=[FINISH[:-2].replace(b'"length"', b"null")], framing=Framing.CHUNKED
    )
    for broken in (first, unfinished):
        async with (
            Backend(partial(_always, broken)) as failing,
            Backend(lambda _: sse_script(b'{"other":1}', b"[DONE]")) as other,
            running(failing, other, probes=NEVER_AGAIN) as gateway,
        ):
            answers = [await gateway.post(b'{"stream":true}') for _ in range(2)]
            assert len(failing.exchanges) == 1 and len(other.exchanges) == 1
            cut = next(answer for answer in answers if b'"other"' not in answer.body)
            assert b'"backend_broke"' in cut.body and not cut.complete


async def test_a_request_that_stores_something_never_runs_twice_for_a_dead_connection() -> None:
    def script(request: Request) -> Script:
        return Script() if request.body == b"{}" else Script(framing=Framing.RAW, ending=Ending.CUT)

    async with Backend(script) as backend, running(backend) as gateway:
        assert (await gateway.post(b"{}")).status == 200
        assert (await gateway.post(b'{"store":true}')).status == 502
        assert len(backend.exchanges) == 2


async def test_no_plain_text_is_put_behind_a_compressed_stream() -> None:
    packed = gzip.compress(b"data: x\n\n" * 50, mtime=0)[:-4]
    script = Script(
        headers=[SSE, (b"Content-Encoding", b"gzip")],
        chunks=[packed],
        framing=Framing.CHUNKED,
        ending=Ending.CUT,
    )
    async with Backend(lambda _: script) as backend, running(backend) as gateway:
        answer = await gateway.post(b'{"stream":true}')
        assert (answer.body, answer.complete) == (packed, False)


async def test_a_pipelined_body_that_is_late_does_not_end_the_request_before_it() -> None:
    server = ServerSettings(port=0, body_gap_seconds=0.05, header_seconds=0.05)
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate, chunks=[b"first"])) as backend,
        running(backend, server=server) as gateway,
        await gateway.connect() as connection,
    ):
        late = client.request("POST", CHAT, [(b"Content-Length", b"100")]) + b"{"
        await connection.send(client.request("GET", "/v1/first") + late)
        exchange = await backend.exchange()
        # Longer than both limits: the gateway's own probes pass in the meantime.
        for _ in range(20):
            assert (await gateway.get("/healthz")).status == 200
        gate.set()
        assert (await connection.read_answer()).body == b"first"
        assert exchange.request.target == "/v1/first"


async def test_a_long_head_behind_another_request_is_bounded_like_the_first() -> None:
    server = ServerSettings(port=0, max_header_kb=1)
    long = client.request("GET", "/healthz", [(b"x-long", b"a" * 5000)])
    async with (
        Backend() as backend,
        running(backend, server=server) as gateway,
        await gateway.connect() as connection,
    ):
        await connection.send(client.request("GET", "/healthz") + long)
        answers = await connection.read_until_closed()
        assert b"a" * 100 not in answers and answers.count(b"HTTP/1.1 200") <= 1
        assert gateway.metric("headrace_refusals_total", reason="head_too_large") == 1


async def test_a_client_that_leaves_its_last_answer_unread_is_let_go() -> None:
    """Less than the high-water mark stays unsent and the connection is to close: nobody else would end it."""
    server = ServerSettings(port=0, stall_seconds=0.05, keep_alive_seconds=0.05, header_seconds=0.05)
    body = b"x" * 3_000_000
    async with (
        Backend(lambda _: Script(chunks=[body])) as backend,
        running(backend, server=server) as gateway,
    ):
        connection = await gateway.connect(receive_buffer_bytes=4096)
        await connection.send(client.request("GET", "/v1/x", [(b"Connection", b"close")]))
        await backend.exchange()
        await until(lambda: not gateway.server.connections)
        connection.close()
