"""Heads, both ways: what passes in its order, what stops at the gateway, what it makes; methods, targets and old clients."""

from __future__ import annotations

import pytest

from gateway.settings import BackendSettings, PoolSettings, ServerSettings, Settings
from tests import client
from tests.backend import Backend, Framing, Gate, Request, Script, json_script, sse_script
from tests.running import CHAT, JSON, running, running_with


async def test_a_clients_headers_pass_in_their_order_with_duplicates_and_values_as_they_are() -> None:
    sent = [
        (b"X-Zulu", b"1"),
        (b"x-alpha", b"a  b\t c"),
        (b"X-Zulu", b"2"),
        (b"Cookie", b"k=v; w=\xff\xe4"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"tracestate", b"a=1"),
        (b"User-Agent", b"OpenAI/Python 1"),
        (b"x-empty", b""),
    ]
    async with Backend() as backend, running(backend) as gateway:
        await gateway.post({}, headers=sent)
        got = [
            (name, value)
            for name, value in backend.exchanges[0].request.headers
            if name not in (b"host", b"content-type", b"content-length", b"x-request-id")
        ]
        assert got == [(name.lower(), value) for name, value in sent]
        assert backend.exchanges[0].request.values(b"host") == [backend.url.removeprefix("http://").encode()]


async def test_hop_by_hop_headers_stop_here_and_so_do_those_named_in_connection() -> None:
    hop_by_hop = [
        (b"Connection", b"keep-alive, X-Foo"),
        (b"X-Foo", b"1"),
        (b"TE", b"trailers"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Proxy-Authorization", b"Basic x"),
        (b"Proxy-Connection", b"keep-alive"),
        (b"Upgrade", b"h2c"),
        (b"Trailer", b"x"),
        (b"Kept", b"yes"),
    ]
    answer_headers = [
        (b"connection", b"keep-alive, x-bar"),
        (b"x-bar", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authenticate", b"Basic"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (b"server", b"engine"),
    ]
    async with (
        Backend(lambda _: Script(headers=answer_headers, chunks=[b"x"])) as backend,
        running(backend) as gateway,
    ):
        answer = await gateway.post({}, headers=hop_by_hop)
        names = {name for name, _ in backend.exchanges[0].request.headers}
        assert names == {b"host", b"content-type", b"content-length", b"x-request-id", b"kept"}
        passed = [pair for pair in answer.headers if not pair[0].startswith(b"x-")]
        assert passed == [*answer_headers[4:], (b"content-length", b"1")]
        assert answer.value(b"x-bar") is None


async def test_gateway_headers_and_engine_overrides_never_reach_an_engine() -> None:
    own = [
        b"x-headrace-business",
        b"X-Headrace-Lane",
        b"x-headrace-anything",
        b"x-business-type",
        b"x-priority",
    ]
    own += [b"x-session-id", b"x-vllm-priority", b"X-Data-Parallel-Rank", b"x-smg-routing-key"]
    own += [b"x-override-rid", b"x-override-priority", b"x-override-bootstrap-host"]
    async with Backend() as backend, running(backend) as gateway:
        assert (await gateway.post({}, headers=[(name, b"1") for name in own])).status == 200
        names = {name for name, _ in backend.exchanges[0].request.headers}
        assert names == {b"host", b"content-type", b"content-length", b"x-request-id"}


async def test_a_backends_own_key_takes_the_place_of_the_clients() -> None:
    client_key = [(b"Authorization", b"Bearer clients")]
    async with Backend(record_probes=True) as keyed, Backend() as open_one:
        backends = (BackendSettings(url=keyed.url, api_key="s3cret"),)
        settings = Settings(pools=(PoolSettings(name="p", backends=backends),), server=ServerSettings(port=0))
        async with running_with(settings) as gateway:
            await gateway.post({}, headers=client_key)
            await gateway.post({})
            for exchange in keyed.exchanges:
                assert exchange.request.values(b"authorization") == [b"Bearer s3cret"]
            assert len(keyed.exchanges) >= 2
        async with running(open_one) as gateway:
            await gateway.post({}, headers=client_key)
            assert open_one.exchanges[0].request.values(b"authorization") == [b"Bearer clients"]


async def test_a_request_id_is_kept_if_it_is_fit_and_made_if_it_is_not() -> None:
    async with Backend() as backend, running(backend) as gateway:
        kept = await gateway.post({}, headers=[(b"X-Request-Id", b"abc-1")])
        assert kept.value(b"x-request-id") == b"abc-1"
        assert backend.exchanges[0].request.values(b"x-request-id") == [b"abc-1"]
        for unfit in (b"a%0d%0a b", b"\ttab\t.", b"x" * 129, b"x" * 60_000, "é".encode(), b""):
            backend.exchanges.clear()
            answer = await gateway.post({}, headers=[(b"X-Request-Id", unfit)])
            made = answer.value(b"x-request-id")
            assert made and len(made) <= 128 and made != unfit
            assert backend.exchanges[0].request.values(b"x-request-id") == [made]


async def test_a_request_id_in_the_body_is_the_requests_where_no_header_names_one() -> None:
    """vLLM takes it from there, but from the header first, which the gateway always sends."""
    async with Backend() as backend, running(backend) as gateway:
        answer = await gateway.post({"request_id": "abc-1"})
        assert answer.value(b"x-request-id") == b"abc-1"
        assert backend.exchanges[0].request.values(b"x-request-id") == [b"abc-1"]
        answer = await gateway.post({"request_id": "abc-1"}, headers=[(b"X-Request-Id", b"abc-2")])
        assert answer.value(b"x-request-id") == b"abc-2"
        unfit: tuple[object, ...] = ("a b", "a\r\nx: y", "x" * 129, "é", "", 7, None, ["a"])
        for value in unfit:
            answer = await gateway.post({"request_id": value})
            made = answer.value(b"x-request-id")
            assert made and made.isalnum() and made != str(value).encode()


async def test_one_request_id_used_twice_at_once_mixes_nothing_up() -> None:
    gates = {b"one": Gate(), b"two": Gate()}

    def script(request: Request) -> Script:
        who = request.value(b"x-who") or b""
        return sse_script(b'{"who":"%b"}' % who, gates[who], b"[DONE]")

    async with Backend(script) as backend, running(backend) as gateway:
        same = (b"X-Request-Id", b"same")
        one = await gateway.begin(b'{"stream":true}', headers=[same, (b"X-Who", b"one")])
        first = await backend.exchange(0)
        two = await gateway.begin(b'{"stream":true}', headers=[same, (b"X-Who", b"two")])
        head = await two.read_head()
        one.close()
        await first.peer_closed.wait()
        gates[b"two"].set()
        answer = await two.read_body(head)
        assert (head.value(b"x-request-id"), answer.complete) == (b"same", True)
        assert answer.body == b'data: {"who":"two"}\n\ndata: [DONE]\n\n'
        assert not backend.exchanges[1].peer_closed.is_set()
        two.close()


@pytest.mark.parametrize(
    "target",
    [
        "/version?a=1&b=%20%2F&c",
        "/version?",
        "/v1/responses/resp_%C3%A9?x=/../y",
        "/v1/responses/a%20b/input_items?limit=2&after=%00",
        "/v1/x;p=1",
        "/v1/x?q=a+b&q=%E4%BF%A1",
        "/v1/files/~tilde'()*!",
    ],
)
async def test_a_target_passes_undecoded_or_is_refused_but_is_never_rewritten(target: str) -> None:
    async with Backend(record_probes=True) as backend:
        backend.probes.pop("/version")
        async with running(backend) as gateway:
            answer = await gateway.get(target, (b"x-from", b"client"))
            requests = [exchange.request for exchange in backend.exchanges]
            sent = [request.target for request in requests if request.value(b"x-from")]  # the rest are probes
            if answer.status == 404:
                assert sent == [] and ("%C3" in target or ";" in target)
            else:
                assert sent == [target.removesuffix("?")]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "POST", "OPTIONS", "HEAD"])
async def test_every_method_passes_below_v1(method: str) -> None:
    async with (
        Backend(lambda _: Script(status=204, framing=Framing.LENGTH)) as backend,
        running(backend) as gateway,
    ):
        body = b'{"a":1}' if method in ("PUT", "PATCH", "POST") else None
        answer = await gateway.send(client.request(method, "/v1/things/1", [], body))
        assert answer.status == 204
        got = backend.exchanges[0].request
        assert (got.method, got.body) == (method, body or b"")


async def test_a_cancel_call_without_a_body_reaches_the_engine() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for raw in (
            client.request("POST", "/v1/responses/resp_1/cancel"),
            client.request("POST", "/v1/responses/resp_1/cancel", [JSON], b""),
        ):
            assert (await gateway.send(raw)).status == 200
            assert backend.exchanges.pop().request.values(b"content-length") == [b"0"]


async def test_head_gets_the_headers_of_get_and_no_body() -> None:
    def script(request: Request) -> Script:
        return Script(headers=[(b"content-type", b"application/json")], chunks=[b'{"version":"1"}'])

    async with Backend(script) as backend:
        backend.probes.pop("/version")
        async with running(backend) as gateway, await gateway.connect() as connection:
            for _ in range(3):
                await connection.send(client.request("HEAD", "/version"))
                answer = await connection.read_answer()
                assert (answer.status, answer.value(b"content-length"), answer.body) == (200, b"15", b"")
                await connection.send(client.request("GET", "/version"))
                assert (await connection.read_answer()).body == b'{"version":"1"}'
                await connection.send(client.request("HEAD", "/v1/models"))
                assert (await connection.read_answer()).status == 200


async def test_a_client_that_expects_100_is_told_to_go_on_before_it_sends_its_body() -> None:
    body = b'{"model":"m"}'
    raw = client.request("POST", CHAT, [JSON, (b"Expect", b"100-continue")], body)
    head, body = raw[: -len(body)], body
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(head)
        assert await connection.read_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert backend.exchanges == []
        await connection.send(body, more=True)
        assert (await connection.read_answer()).status == 200
        got = backend.exchanges[0].request
        assert (got.body, got.value(b"expect")) == (body, None)


async def test_a_client_that_expects_100_for_too_long_a_body_is_refused_instead() -> None:
    headers = [(b"Expect", b"100-continue"), (b"Content-Length", b"40000000")]
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(client.request("POST", CHAT, headers))
        answer = await connection.read_answer()
        assert (answer.status, answer.head.interim) == (413, ())
        assert backend.exchanges == []


async def test_a_client_of_http_1_0_gets_no_chunks_and_the_connections_end() -> None:
    def script(request: Request) -> Script:
        return sse_script(b"a", b"[DONE]") if b"stream" in request.body else json_script({"a": 1})

    async with Backend(script) as backend, running(backend) as gateway:
        for body, expected in ((b'{"stream":true}', b"data: a\n\ndata: [DONE]\n\n"), (b"{}", b'{"a": 1}')):
            async with await gateway.connect() as connection:
                await connection.send(client.request("POST", CHAT, [JSON], body, version=b"HTTP/1.0"))
                answer = await connection.read_answer()
                assert (answer.status, answer.body) == (200, expected)
                assert answer.value(b"transfer-encoding") is None
                assert await connection.read_until_closed() == b""
            assert backend.exchanges.pop().request.start_line.endswith(b"HTTP/1.1")


async def test_an_answers_headers_cannot_smuggle_a_second_answer() -> None:
    """What an engine may not send: two framings, or a head beyond the bound; the client gets a 502 and no part of it."""
    both = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    long = b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\ncontent-length: 0\r\n\r\n"
    many = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"content-length: 0\r\n\r\n"
    said = [b""]

    def script(_: Request) -> Script:
        return Script(chunks=said, framing=Framing.RAW)

    switching = b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"
    for said[0] in (both, long, many, switching, b"SSH-2.0-OpenSSH\r\n\r\n"):
        async with Backend(script) as backend, running(backend) as gateway:
            answer = await gateway.post({})
            assert (answer.status, answer.value(b"x-headrace-reason")) == (502, b"backend_broke"), said[0][
                :40
            ]
