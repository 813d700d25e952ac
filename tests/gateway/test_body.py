"""Reading, looking into and changing a request body."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body import ClientLeft, View, for_engine, read_body, view_form, view_json
from gateway.body_room import BodyPlace, BodyRoom
from gateway.errors import Refused
from gateway.paths import Kind
from policies.terms import Refusal
from tests.gateway.test_form import CONTENT_TYPE, file, form, model
from tests.strategies import JSON_OBJECTS


def room() -> BodyPlace:
    return BodyRoom(1 << 30).place()


LEFT: dict[str, Any] = {"type": "http.disconnect"}


def body_message(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """Sends these messages, and fails a test that asks for more."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        self.left = list(messages)

    async def receive(self) -> dict[str, Any]:
        return self.left.pop(0)


def sends(*parts: bytes) -> Client:
    return Client([body_message(part, number < len(parts)) for number, part in enumerate(parts, 1)])


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([b""], b""),
        ([b"abc"], b"abc"),
        ([b"a", b"", b"bc"], b"abc"),
        ([b"abc", b""], b"abc"),
        ([b"x" * 10], b"x" * 10),
        ([b"x" * 4, b"x" * 6], b"x" * 10),
        ([b"x" * 9, b"x", b""], b"x" * 10),
    ],
)
async def test_a_body_up_to_the_limit_is_read_whole(parts: list[bytes], body: bytes) -> None:
    for declared in (None, len(body)):
        client = sends(*parts)
        assert await read_body(client.receive, declared, 10, room()) == body
        assert client.left == []


async def test_messages_may_leave_out_what_has_a_default() -> None:
    assert await read_body(Client([{"type": "http.request"}]).receive, None, 10, room()) == b""
    more = {"type": "http.request", "more_body": True}
    assert await read_body(Client([more, {"type": "http.request"}]).receive, None, 10, room()) == b""


@pytest.mark.parametrize("parts", [[b"x" * 11], [b"x" * 10, b"x"], [b"x" * 11, b""], [b"x", b"x" * 10]])
async def test_a_body_of_unknown_length_is_refused_beyond_the_limit(parts: list[bytes]) -> None:
    with pytest.raises(Refused) as caught:
        await read_body(sends(*parts).receive, None, 10, room())
    assert caught.value.reason is Refusal.BODY_TOO_LARGE
    assert "10 bytes" in caught.value.message


async def test_what_is_declared_too_long_is_not_read_at_all() -> None:
    client = sends(b"x" * 11)
    with pytest.raises(Refused):
        await read_body(client.receive, 11, 10, room())
    assert len(client.left) == 1


async def test_reading_stops_as_soon_as_the_limit_is_passed() -> None:
    client = sends(*[b"x" * 4] * 100)
    with pytest.raises(Refused):
        await read_body(client.receive, None, 10, room())
    assert len(client.left) == 97


@pytest.mark.parametrize("before", [[], [b"{"], [b"{", b'"a":1']])
async def test_a_client_that_leaves_inside_its_body_sent_none(before: list[bytes]) -> None:
    client = Client([*(body_message(part, True) for part in before), LEFT])
    with pytest.raises(ClientLeft):
        await read_body(client.receive, None, 10, room())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'[{"model":"m"}]',
        b'"text"',
        b"7",
        b"true",
        b"NaN",
        b"{",
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":1}{}',
        b'{"a":"\n"}',
        b'{"a":"\xff"}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"n":' + b"9" * 10_000 + b",}",
        '{"model":"m"}'.encode("utf-16"),
        '{"model":"m"}'.encode("utf-32-le"),
    ],
    ids=range(21),
)
def test_what_no_engine_takes_for_a_request_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        view_json(body)
    assert caught.value.reason is Refusal.BAD_REQUEST


@pytest.mark.parametrize(
    ("body", "view"),
    [
        (b"{}", View()),
        (b'{"model":"m"}', View("m")),
        (b'{"model":"a","model":"b"}', View("b")),
        (b'{"model":null}', View()),
        (b'{"model":["m"]}', View()),
        (b'{"model":"m","x":NaN,"y":-Infinity}', View("m")),
        (b'{"model":"m","x":1e400}', View("m")),
        (b'{"model":"m","x":"\\ud800"}', View("m")),
        (b'{"model":"\\ud800"}', View("\ud800")),
        (b'{"model":"m","x":123456789012345678901234567890}', View("m")),
        (b'\xef\xbb\xbf{"model":"m"}', View("m")),
        ('{"model":"模型"}'.encode(), View("模型")),
        (b'{"store":true}', View(stores=True)),
        (b'{"background":true}', View(stores=True)),
        (b'{"store":false,"background":null}', View()),
        (b'{"store":1}', View()),
        (b'{"stream":true}', View(lacks_usage=True)),
        (b'{"stream":false}', View()),
        (b'{"stream":1}', View()),
        (b'{"stream":true,"stream_options":null}', View(lacks_usage=True, has_options=True)),
        (b'{"stream":true,"stream_options":{}}', View(lacks_usage=True, has_options=True)),
        (
            b'{"stream":true,"stream_options":{"include_usage":false}}',
            View(lacks_usage=True, has_options=True),
        ),
        (b'{"stream":true,"stream_options":{"include_usage":true}}', View(has_options=True)),
        (b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}', View(has_options=True)),
        (b'{"stream":true,"stream_options":"all"}', View(has_options=True)),
        (b'{"stream":true,"stream_options":[]}', View(has_options=True)),
        (b'{"stream_options":{"include_usage":false}}', View(has_options=True)),
    ],
)
def test_a_body_is_read_leniently_for_the_few_fields_that_matter(body: bytes, view: View) -> None:
    assert view_json(body)._replace(fields={}) == view


@given(JSON_OBJECTS)
def test_every_json_object_is_taken_and_its_last_model_counts(text: str) -> None:
    view = view_json(text.encode())
    expected = json.loads(text).get("model")
    assert view.model == (expected if isinstance(expected, str) else "")


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_raise_anything_but_a_refusal(body: bytes) -> None:
    for text in (body, b'{"model":' + body + b"}", b'{"a":"' + body + b'"}'):
        try:
            view_json(text)
        except Refused as refused:
            assert refused.reason is Refusal.BAD_REQUEST
        view_form(text, CONTENT_TYPE)


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"stream":true}', b'{"stream":true,"stream_options":{"include_usage":true}}'),
        (
            b'{"stream":true, "stream_options" : null }',
            b'{"stream":true, "stream_options" : {"include_usage":true} }',
        ),
        (
            b'{"stream_options":{"include_usage":false,"x":1e400,"y":"\\ud800"},"stream":true}',
            b'{"stream_options":{"include_usage":true,"x":1e400,"y":"\\ud800"},"stream":true}',
        ),
        (
            b'{"stream":true,"stream_options":{ "big": 123456789012345678901234567890 }}',
            b'{"stream":true,"stream_options":{ "big": 123456789012345678901234567890 ,"include_usage":true}}',
        ),
        (
            b'{"stream":true,"stream_options":1,"stream_options":{}}',
            b'{"stream":true,"stream_options":1,"stream_options":{"include_usage":true}}',
        ),
    ],
)
def test_usage_is_asked_for_without_touching_another_byte(body: bytes, sent: bytes) -> None:
    view = view_json(body)
    for kind in (Kind.CHAT, Kind.COMPLETION):
        assert for_engine(body, view, kind, view.model) == (sent, True)
    for kind in (Kind.JSON, Kind.FORM, Kind.OTHER):
        assert for_engine(body, view, kind, view.model) == (body, False)


@given(JSON_OBJECTS)
def test_with_usage_added_the_request_is_otherwise_the_same(text: str) -> None:
    body = text.encode()
    view = view_json(body)._replace(lacks_usage=True)
    before = json.loads(body)
    if not isinstance(before.get("stream_options"), dict | None):
        return
    sent, added = for_engine(body, view, Kind.CHAT, view.model)
    after = json.loads(sent)
    assert added
    options = {**(before.get("stream_options") or {}), "include_usage": True}
    assert repr(after) == repr({**before, "stream_options": options})


def test_a_body_that_needs_no_change_is_the_clients_very_object() -> None:
    body = b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
    assert for_engine(body, view_json(body), Kind.CHAT, "m")[0] is body


def test_an_alias_is_replaced_by_the_name_that_the_engine_knows() -> None:
    body = b'{ "model": "alias", "x": {"model": "alias"} }'
    sent, _ = for_engine(body, view_json(body), Kind.JSON, 'na"me')
    assert sent == b'{ "model": "na\\"me", "x": {"model": "alias"} }'


def test_in_a_form_only_the_field_is_replaced() -> None:
    evil = b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nalias\r\n'
    body = form(file(evil), model(b"alias"))
    view = view_form(body, CONTENT_TYPE)
    assert view.model == "alias"
    sent, added = for_engine(body, view, Kind.FORM, "模型")
    assert (sent, added) == (form(file(evil), model("模型".encode())), False)


def test_a_form_without_a_model_names_none() -> None:
    assert view_form(form(file(b"x")), CONTENT_TYPE) == View()
    assert view_form(form(model(b"\xff")), CONTENT_TYPE).model == "�"
