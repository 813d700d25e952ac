"""One member changes; every other byte stays as the client sent it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import splice
from gateway.splice import (
    NESTING,
    SLOW_BYTES,
    TooDeep,
    element_spans,
    member,
    set_member,
    without_member,
)
from policies.terms import Refusal
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
@example(b'{"x":"model","model" : [ {"a":1} ] }', "model")
@example(b'{"y":{"model":1},"x":"\\u006d"}', "model")
@example(b'{"a":1, "model" :\t-1.5e3\n,"b":2}', "model")
@example(b'{"a":1,"model":"m"  }', "model")
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


@given(JSON_OBJECTS.map(lambda text: text.encode()), KEYS)
@example(b'{"x":"model","model" : [ {"a":1} ] }', "model")
@example(b'{ "a":1, "model" :\t-1.5e3\n,"b":2}', "model")
@example(b'{"model":"m"  }', "model")
@example(b'{ "a":1 , "model":{}}', "model")
@example(b'{"\\u006dodel":1,"x":"model"}', "model")
@example(b'{"x":"\\"model\\"","model":null}', "model")
def test_a_member_that_is_known_to_be_there_is_found_where_it_is_looked_for(body: bytes, key: str) -> None:
    if any(name == key for name, _ in loaded(body)):
        assert member(body, key, is_known=True) == member(body, key)
        assert set_member(body, key, NEW, is_known=True) == set_member(body, key, NEW)
        assert without_member(body, key, is_known=True) == without_member(body, key)


SHAPES = {
    "token ids": b"[" + b"12345," * 20_000 + b"1]",
    "empty objects": b"[" + b"{}," * 40_000 + b"{}]",
    "short texts": b"[" + b'"a",' * 40_000 + b'"a"]',
    "messages": b"[" + b'{"role":"user","content":"a"},' * 4_000 + b"{}]",
    "escapes": b'"' + b'\\"{' * 40_000 + b'"',
    "not a number": b"[" + b"NaN," * 40_000 + b"1]",
    "deep": b"[" * NESTING + b"1," * 40_000 + b"1" + b"]" * NESTING,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_however_much_is_in_a_value_it_is_one_step(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"x":%b,"model":"a","y":%b,"model":"b","z":%b}' % ((SHAPES[shape],) * 3)
    steps = list(splice._tokens(body, 1))
    assert len(steps) == 20
    assert set_member(body, "model", b"1") == body.replace(b'"model":"b"', b'"model":1')
    assert without_member(body, "model") == body.replace(b'"model":"a",', b"").replace(b'"model":"b",', b"")
    assert element_spans(b"[%b, 2]" % SHAPES[shape], (0, len(SHAPES[shape]) + 5))[0] == (
        1,
        len(SHAPES[shape]) + 1,
    )
    once = body.replace(b'"model":"b",', b"")

    def looked(*_: object) -> None:
        raise AssertionError("the body was looked over")

    monkeypatch.setattr(splice, "_tokens", looked)
    assert member(once, "model", is_known=True) == b'"a"'
    assert without_member(once, "model", is_known=True) == once.replace(b'"model":"a",', b"")


def test_deeper_values_are_looked_at_token_by_token_and_of_a_large_body_refused() -> None:
    deep = b"[" * 2 * NESTING + b"]" * 2 * NESTING
    body = b'{"x":%b,"y":{"model":2},"model":1}' % deep
    assert set_member(body, "model", b"3") == body.replace(b'"model":1', b'"model":3')
    assert without_member(body, "model") == body.replace(b',"model":1', b"")
    large = b'{"x":%b,"y":{"model":2},"model":1,"z":"%b"}' % (deep, b"z" * SLOW_BYTES)
    for change in (set_member, without_member):
        with pytest.raises(TooDeep) as refused:
            change(large, "model", *([b"3"] if change is set_member else []))
        assert refused.value.reason is Refusal.BAD_REQUEST
    once = large.replace(b'"y":{"model":2},', b"")
    assert set_member(once, "model", b"3", is_known=True) == once.replace(b'"model":1', b'"model":3')
