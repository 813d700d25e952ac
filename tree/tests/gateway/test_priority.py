"""A body says the gateway's priority or none, and is the client's otherwise."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.priority import for_priority
from tests.strategies import JSON_OBJECTS

OTHERS = JSON_OBJECTS.map(lambda text: text.encode()).filter(lambda body: "priority" not in json.loads(body))
CLIENTS = st.lists(
    st.integers(-(2**70), 2**70).map(lambda number: b'"priority": %d' % number), min_size=1, max_size=3
)


@given(OTHERS)
@example(b"{ }")
def test_a_body_without_a_priority_stays_as_it_is_where_none_is_said(body: bytes) -> None:
    assert for_priority(body, False, None) is body


@given(OTHERS, CLIENTS)
def test_a_clients_priority_is_gone_where_none_is_said_and_every_other_member_stays(
    other: bytes, own: list[bytes]
) -> None:
    end = other.rindex(b"}")
    comma = b", " if json.loads(other) else b""
    body = other[:end] + comma + b", ".join(own) + other[end:]
    assert json.loads(body)["priority"] is not None
    # NaN aside, which equals nothing: the texts are compared.
    assert json.dumps(json.loads(for_priority(body, True, None))) == json.dumps(json.loads(other))


@given(OTHERS, st.integers(0, 30))
def test_the_gateways_priority_is_put_in(body: bytes, value: int) -> None:
    said = json.loads(for_priority(body, False, value))
    assert said.pop("priority") == value
    assert json.dumps(said) == json.dumps(json.loads(body))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"priority": -5, "a": 1.50}', b'{"priority": 2, "a": 1.50}'),
        (b'{"priority": 9, "priority": "x"}', b'{"priority": 9, "priority": 2}'),
        (b'{"a": {"priority": 9}, "priority" : null }', b'{"a": {"priority": 9}, "priority" : 2 }'),
    ],
)
def test_the_gateways_priority_takes_the_place_of_the_clients(body: bytes, expected: bytes) -> None:
    changed = for_priority(body, True, 2)
    assert changed == expected and json.loads(changed)["priority"] == 2
