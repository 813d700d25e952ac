"""No value that a client, an engine or the configuration brings makes a header or a log line of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.configuration import ConfigurationError, parse
from gateway.headers import usable_request_id
from gateway.settings import AnonymousSettings, BusinessTypeSettings
from tests import client
from tests.backend import Backend, Framing, Request, Script
from tests.fuzz import strict
from tests.running import CHAT, running

EVIL = "x\r\nx-evil: 1\r\n\r\nHTTP/1.1 200 OK\r\n"
FIELDS: list[dict[str, Any]] = [
    {"model": EVIL},
    {"model": "m", "session_id": EVIL},
    {"model": "m", "prompt_cache_key": EVIL},
    {"model": "m", "service_tier": EVIL},
    {"model": "m", "priority": EVIL},
    {"model": "m", "user": EVIL, "metadata": {EVIL: EVIL}},
    {"model": "\ud800\r\nx-evil: 1"},
    {"model": "\u2028\u0085\x00x-evil: 1"},
]
NAMES = (
    b"x-request-id", b"x-headrace-session", b"x-session-id", b"x-headrace-business", b"x-business-type", b"x-headrace-lane", b"x-headrace-tenant", b"x-headrace-pool", b"x-headrace-backend",
    b"x-headrace-path", b"x-headrace-deadline-ms", b"x-headrace-session-seq", b"x-headrace-history", b"authorization", b"x-api-key", b"connection", b"x-anything",
)  # fmt: skip
ODD_VALUES = (b"a\tb", b"\xff\xfe", b"\xc2\x85x-evil: 1", b"%0d%0ax-evil:%201", b"\\r\\nx-evil: 1", b"; x-evil=1, b", b"\xe2\x80\xa8x-evil: 1", b"host, content-length")  # fmt: skip
BREAKING = (b"a\r\nx-evil: 1", b"a\nx-evil: 1", b"a\rx-evil: 1", b"a\0x-evil: 1", b"a\r\n x-evil: 1")


def is_sound(answer: client.Answer) -> bool:
    """Its head is what a strict reader takes, and nothing in it is evil."""
    raw = (
        answer.head.start_line + b"\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in answer.headers) + b"\r\n"
    )
    names = [name.lower() for name, _ in answer.headers]
    meant = strict.answer(raw.replace(b"ransfer-encoding", b"-e").replace(b"content-length", b"c-l"), True)
    return meant is not None and b"x-evil" not in names and len(set(names)) == len(names)


def sound_requests(backend: Backend) -> bool:
    raw = [one.request.raw_head + one.request.body for one in backend.exchanges]
    return all(len(strict.requests(one)) == 1 and b"\nx-evil" not in one.lower() for one in raw)


async def test_what_a_body_says_makes_no_header_and_no_line_of_the_log() -> None:
    trusted = AnonymousSettings(trust_headers=True)
    async with Backend() as backend, running(backend, anonymous=trusted) as gateway:
        for fields in FIELDS:
            for body in (fields, fields | {"stream": True}):
                answer = await gateway.post(
                    json.dumps(body | {"messages": [{"role": "user", "content": EVIL}]}).encode()
                )
                assert answer.status in (200, 404) and is_sound(answer)
    assert sound_requests(backend)
    assert len(gateway.log) == 2 * len(FIELDS)
    assert all(str(value).isprintable() for line in gateway.log for value in line.values())


async def test_an_odd_value_in_any_header_stays_where_it_is() -> None:
    trusted = AnonymousSettings(trust_headers=True)
    kinds = (BusinessTypeSettings(name="card"),)
    async with Backend() as backend, running(backend, anonymous=trusted, business_types=kinds) as gateway:
        for name in NAMES:
            for value in ODD_VALUES:
                answer = await gateway.post({"model": "m"}, headers=[(name, value)])
                assert answer.status in (200, 400, 403, 404, 503) and is_sound(answer), (name, value, answer)
                for own in (b"x-headrace-route", b"x-request-id", b"x-headrace-session"):
                    is_echoed = name == own == b"x-request-id" and usable_request_id(value)
                    assert is_echoed or value not in (answer.value(own) or b""), (name, own)
    assert sound_requests(backend) and len(backend.exchanges) > len(NAMES)


async def test_a_value_that_breaks_its_line_is_no_request() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for name in NAMES:
            for value in BREAKING:
                raw = b"POST %b HTTP/1.1\r\nHost: a\r\n%b: %b\r\nContent-Length: 2\r\n\r\n{}" % (
                    CHAT.encode(),
                    name,
                    value,
                )
                answer = await gateway.send(raw)
                # The first of them is two sound headers.
                assert is_sound(answer) and answer.status == (200 if value == BREAKING[0] else 400)
    assert all(one.request.value(b"x-evil") == b"1" for one in backend.exchanges)


async def test_what_an_engine_says_makes_no_header_of_the_gateways() -> None:
    def evil(request: Request) -> Script:
        if request.json().get("raw"):
            return Script(
                chunks=[b"HTTP/1.1 200 O\rK\r\nx: a\nx-evil: 1\r\ncontent-length: 2\r\n\r\nok"],
                framing=Framing.RAW,
            )
        own = [
            (b"x-headrace-route", b"forged"),
            (b"X-Request-Id", b"forged"),
            (b"x-headrace-reason", b"forged"),
        ]
        return Script(headers=[*own, (b"connection", b"close, x-drop"), (b"x-drop", b"1")], chunks=[b"{}"])

    async with Backend(evil) as backend, running(backend) as gateway:
        answer = await gateway.post({})
        assert answer.status == 200 and is_sound(answer) and answer.value(b"x-drop") is None
        assert answer.value(b"x-request-id") != b"forged" and b"forged" not in (
            answer.value(b"x-headrace-route") or b""
        )
        assert answer.value(b"x-headrace-reason") is None
        assert (await gateway.post({"raw": True})).status == 502


@pytest.mark.parametrize("odd", ["a\r\nx-evil: 1", "a\nb", "a\x00", "a\x7f", "é\r", "a;b", "a b"])
def test_no_name_or_key_of_a_configuration_breaks_a_header(odd: str) -> None:
    text = json.dumps(odd)
    for shape in (
        "pools: [{{name: {0}, backends: [{{url: 'http://a:1'}}]}}]",
        "pools: [{{name: p, backends: [{{url: 'http://a:1', name: {0}}}]}}]",
        "pools: [{{name: p, backends: [{{url: 'http://a:1', api_key: {1}}}]}}]",
        "pools: [{{name: p, backends: [{{url: 'http://a:1'}}]}}]\nbusiness_types: [{{name: {0}}}]",
        "pools: [{{name: p, backends: [{{url: 'http://a:1'}}]}}]\ntenants: [{{name: {0}, key_sha256: ['%s']}}]"
        % ("a" * 64),
        "pools: [{{name: p, backends: [{{url: 'http://a:1'}}]}}]\nserver: {{cors_origins: [{0}]}}",
        "pools: [{{name: p, backends: [{{url: 'http://a:1'}}]}}]\nalerts: {{receivers: [{{url: 'http://a:1', bearer_token: {1}}}]}}",
    ):
        with pytest.raises(ConfigurationError):
            parse(shape.format(text, text.replace(";", " ")), "f", {})


def test_the_parts_of_this_test_would_notice() -> None:
    head = client.AnswerHead(b"HTTP/1.1 200 OK", [(b"x-evil", b"1")])
    assert not is_sound(client.Answer(head, b"", True))
    assert not is_sound(client.Answer(client.AnswerHead(b"HTTP/1.1 200 OK", [(b"x", b"a\nb")]), b"", True))
