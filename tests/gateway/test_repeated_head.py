"""A head that is recognised says what the parser would have said, and nothing else is recognised."""

from __future__ import annotations

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.repeated_head import RepeatedHead, repeated_head
from tests.backend import Backend
from tests.running import CHAT, running

HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nAuthorization: Bearer k\r\n\r\n"
)


class Parsed:
    """What llhttp makes of one read."""

    def __init__(self, data: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = self.body = b""
        self.messages = 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1

    @property
    def scope(self) -> dict[str, Any]:
        return {"type": "http", "headers": self.headers, "raw_path": self.url}


def learnt(data: bytes) -> RepeatedHead | None:
    return repeated_head(data, Parsed(data).scope)


def request(body: bytes, head: bytes = HEAD) -> bytes:
    return head % len(body) + body


def test_the_same_head_with_another_body_is_recognised() -> None:
    known = learnt(request(b"{}"))
    assert known is not None
    found = known.match(request(b'{"model":"m"}'))
    assert found is not None
    scope, body = found
    assert body == b'{"model":"m"}'
    assert scope == Parsed(request(body)).scope
    assert known.match(request(b"{}")) == (Parsed(request(b"{}")).scope, b"{}"), (
        "the first one is not changed"
    )


@given(data=st.data())
def test_what_is_recognised_is_what_the_parser_would_have_found(data: st.DataObject) -> None:
    known = learnt(request(b"{}"))
    assert known is not None
    body = data.draw(st.binary(max_size=30))
    raw = bytearray(request(body))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b"\r\n", b"0", b"7", b" ", b"\n", b":", b"\r\nTransfer-Encoding: chunked", b"x"]
            )
        )
    found = known.match(bytes(raw))
    if found is not None:
        parsed = Parsed(bytes(raw))
        assert (parsed.scope, parsed.body, parsed.messages) == (*found, 1)


@pytest.mark.parametrize(
    "other",
    [
        request(b"{}")[:-1],
        request(b"{}") + b"x",
        request(b"{}") + request(b"{}"),
        request(b"{}").replace(b"Bearer k", b"Bearer l"),
        request(b"{}").replace(b"Host: h", b"Host: g"),
        request(b"{}").replace(b"Length: 2", b"Length: +2"),
        request(b"{}").replace(b"Length: 2", b"Length: "),
        request(b"{}").replace(b"POST", b"PUT"),
        b"",
    ],
)
def test_everything_else_goes_to_the_parser(other: bytes) -> None:
    known = learnt(request(b"{}"))
    assert known is not None and known.match(other) is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n",
        request(b"{}").replace(b"Host: h", b"Expect: 100-continue"),
        request(b"{}").replace(b"Host: h", b"Upgrade: h2c"),
        request(b"{}").replace(b"Host: h", b"Trailer: x"),
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_a_head_with_another_framing_is_not_remembered(data: bytes) -> None:
    try:
        assert learnt(data) is None
    except httptools.HttpParserUpgrade:
        assert b"Upgrade" in data


async def test_requests_with_one_head_reach_the_engine_as_they_were_sent() -> None:
    bodies = [b'{"model":"m"}', b'{"model":"m","n":1}', b"{}", b'{"model":"m","messages":[]}']
    heads = [(b"Content-Type", b"application/json"), (b"X-Mine", b"1")]
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        for number, body in enumerate([*bodies, *bodies]):
            more = [*heads, (b"X-Other", b"%d" % number)] if number == 5 else heads
            lines = b"".join(b"%b: %b\r\n" % pair for pair in [(b"Host", b"h"), *more])
            head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (CHAT.encode(), lines, len(body))
            await connection.send(head + body)
            connection._method = b"POST"
            assert (await connection.read_answer()).status == 200
            exchange = backend.exchanges[number]
            assert exchange.request.body == body
            assert exchange.request.value(b"x-other") == (b"5" if number == 5 else None)
            assert exchange.request.value(b"content-length") == b"%d" % len(body)
