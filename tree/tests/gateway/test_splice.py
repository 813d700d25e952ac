"""One member changes; every other byte stays as the client sent it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.splice import member, set_member, without_member
from tests.strategies import JSON_OBJECTS

KEYS = st.sampled_from(["model", "stream_options", "a", "é", ""])
NEW = b'{"set": [1]}'


def loaded(text: bytes) -> list[tuple[str, Any]]:
    """Every member in order, duplicates included; numbers as they are written, since 1e400 equals nothing but itself."""
    items: list[tuple[str, Any]] = json.loads(
        text,
        object_pairs_hook=lambda pairs: pairs,
        parse_int=lambda number: ("number", number),
        parse_float=lambda number: ("number", number),
    )
    return items


@given(JSON_OBJECTS.map(lambda text: text.encode()), KEYS)
@example(b'{"model":"a","model":"b"}', "model")
@example(b'{"x":{"model":"inner"},"model":"outer","y":[{"model":1}]}', "model")
@example(b'{"\\u006dodel":"escaped"}', "model")
@example(b" { } ", "model")
@example(b'{"a":"}","model" : "\\"}" , "b":-0.0}', "model")
@example(b'{"model":{}}', "model")
@example(b'{"x":"\\\\","model":[1,{"model":2}]}\n', "model")
def test_exactly_the_member_that_parsers_keep_is_set_and_all_other_bytes_stay(body: bytes, key: str) -> None:
    before = loaded(body)
    changed = set_member(body, key, NEW)
    places = [place for place, (name, _) in enumerate(before) if name == key]
    after = loaded(changed)
    if places:
        last = places[-1]
        expected = [*before[:last], (key, loaded(NEW)), *before[last + 1 :]]
        old = member(body, key)
        assert old is not None and loaded(b'{"x":%b}' % old) == [("x", before[last][1])]
        start = changed.find(NEW)
        starts = []
        while start >= 0:
            starts.append(start)
            start = changed.find(NEW, start + 1)
        assert body in [changed[:at] + old + changed[at + len(NEW) :] for at in starts]
    else:
        expected = [*before, (key, loaded(NEW))]
        assert member(body, key) is None
        end = body.rindex(b"}")
        assert changed.startswith(body[:end]) and changed.endswith(body[end:])
        separator = b"," if before else b""
        assert len(changed) == len(body) + len(separator) + len(b'"%b":%b' % (key.encode(), NEW))
    assert after == expected
    assert member(changed, key) == NEW
    assert set_member(changed, key, NEW) == changed


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"model":"a"}', b'"a"'),
        (b'{ "model" :\t"a" \r\n}', b'"a"'),
        (b'{"model":1,"model":[ 2 ]}', b"[ 2 ]"),
        (b'{"m\\u006fdel":null}', b"null"),
        (b'{"x":"model","y":{"model":1}}', None),
        (b'{"model ":1}', None),
        (b"{}", None),
    ],
)
def test_examples_of_what_stands_under_a_name(body: bytes, value: bytes | None) -> None:
    assert member(body, "model") == value


def test_a_new_member_comes_last() -> None:
    assert set_member(b'{"a":1}\n', "b", b"2") == b'{"a":1,"b":2}\n'
    assert set_member(b'{"a":{}}', "b", b"2") == b'{"a":{},"b":2}'
    assert set_member(b"{ }", "b", b"2") == b'{ "b":2}'
    assert set_member(b"\xef\xbb\xbf{}", "b", b"2") == b'\xef\xbb\xbf{"b":2}'


@given(JSON_OBJECTS.map(lambda text: text.encode()), KEYS)
@example(b'{"model":"a","x":1,"model":"b"}', "model")
@example(b'{"x":1,"model":"a","model":"b"}', "model")
@example(b'{"model":"a","model":"b"}', "model")
@example(b'{"x":{"model":"inner"},"model":{"model":[1,{"a":2}]},"y":[{"model":1}]}', "model")
@example(b'{"\\u006dodel":"escaped"}', "model")
@example(b" { } ", "model")
@example(b'{"a":"}","model" : "\\"}" , "b":-0.0}', "model")
def test_every_member_of_a_name_is_taken_out_and_the_others_stay_as_they_are(body: bytes, key: str) -> None:
    before = loaded(body)
    changed = without_member(body, key)
    assert loaded(changed) == [item for item in before if item[0] != key]
    if changed == body:
        assert key not in dict(before)
    assert member(changed, key) is None
