"""The id of a response is seen in the bytes of both engines, in whatever pieces they come, and nothing else is taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sessions.response_sight import LOOK_BYTES, ResponseSight
from tests.captures import ENGINES, FIXTURES

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.just("id") | st.just("response"), inner, max_size=3)
    ),
    max_leaves=8,
)
MEMBERS = st.dictionaries(
    st.text().filter(lambda name: name not in ("id", "response")), VALUES, max_size=4
)  # fmt: skip


def seen(raw: bytes, is_stream: bool, size: int) -> str:
    sight = ResponseSight(is_stream)
    for at in range(0, len(raw), size):
        found = sight.feed(raw[at : at + size])
        assert not found or sight.done
        if sight.done:
            return found
    return ""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["responses", "responses-stream"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_both_engines_ids_are_seen(engine: str, name: str, size: int) -> None:
    body = (FIXTURES / engine / f"{name}.http").read_bytes().partition(b"\r\n\r\n")[2]
    is_stream = name.endswith("stream")
    found = seen(body, is_stream, size)
    assert found.startswith("resp_") and body.index(found.encode()) < 150
    assert json.dumps(found).encode() in body


@settings(max_examples=40)
@given(MEMBERS, MEMBERS, st.integers(1, 40), st.booleans())
def test_the_order_of_the_members_does_not_matter(
    before: dict[str, Any], after: dict[str, Any], size: int, is_stream: bool
) -> None:
    content: dict[str, Any] = {**before, "id": "resp_1", **after}
    if is_stream:
        content = {**after, "id": "resp_of_an_event", "response": content, **before}
    raw = json.dumps(content).encode()
    if is_stream:
        raw = b"data: %b\n\n" % raw
    assert seen(raw, is_stream, size) == "resp_1"


@settings(max_examples=40)
@given(st.binary(), st.booleans(), st.integers(1, 40))
def test_no_bytes_upset_it(raw: bytes, is_stream: bool, size: int) -> None:
    seen(raw, is_stream, size)


@pytest.mark.parametrize(
    "content",
    [{}, {"x": {"id": "a"}}, {"id": 5}, {"id": ["a"]}, {"x": "id", "y": "a"}, {"id": "a\nb"}, {"id": ""}, {"id": "x" * 129}],
)  # fmt: skip
def test_what_is_not_an_id_is_not_taken_for_one(content: dict[str, Any]) -> None:
    assert seen(json.dumps(content).encode(), False, 1000) == ""


@pytest.mark.parametrize("is_stream", [False, True])
def test_it_looks_no_further_than_its_bound(is_stream: bool) -> None:
    start = b'data: {"response":{' if is_stream else b"{"
    raw = start + b'"x":"%b","id":"resp_1"' % (b"y" * LOOK_BYTES)
    sight = ResponseSight(is_stream)
    assert [sight.feed(raw[at : at + 4096]) for at in range(0, LOOK_BYTES, 4096)] == [""] * 4
    assert sight.done
