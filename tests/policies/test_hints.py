"""What a client asks for, in the words of the gateway and of others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.hints import FIELDS, HEADERS, MAX_DEADLINE_MS, MAX_TEXT, NO_HINTS, Hints, hints
from policies.terms import CachePath, Lane

NAMES = [name for name, _, _ in HEADERS]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x-headrace-business", "cards", Hints(business="cards")),
        ("x-business-type", " cards ", Hints(business="cards")),
        ("x-headrace-lane", "Emergency", Hints(lane=Lane.EMERGENCY)),
        ("x-priority", "high", Hints(lane=Lane.INTERACTIVE)),
        ("x-priority", "normal", Hints(lane=Lane.STANDARD)),
        ("x-priority", "low", Hints(lane=Lane.BATCH)),
        ("x-smg-priority", "System", Hints(lane=Lane.EMERGENCY)),
        ("x-smg-priority", "bulk", Hints(lane=Lane.BATCH)),
        ("x-smg-priority", "default", NO_HINTS),
        ("x-dynamo-request-priority", "10", Hints(lane=Lane.INTERACTIVE)),
        ("x-dynamo-request-priority", "-1", Hints(lane=Lane.BATCH)),
        ("x-dynamo-request-priority", "0", NO_HINTS),
        ("priority", "u=0", Hints(lane=Lane.INTERACTIVE)),
        ("priority", "i, u=2", Hints(lane=Lane.INTERACTIVE)),
        ("priority", "u=1, i", Hints(lane=Lane.INTERACTIVE)),
        ("priority", "u=3", NO_HINTS),
        ("priority", "u=4", Hints(lane=Lane.STANDARD)),
        ("priority", "u=5;x", Hints(lane=Lane.STANDARD)),
        ("priority", "u=6", Hints(lane=Lane.BATCH)),
        ("priority", "u=7", Hints(lane=Lane.BATCH)),
        ("x-headrace-session", "s-1", Hints(session="s-1")),
        ("x-session-id", "s-1", Hints(session="s-1")),
        ("x-smg-routing-key", "s-1", Hints(session="s-1")),
        ("x-headrace-tenant", "bank-a", Hints(tenant="bank-a")),
        ("x-headrace-deadline-ms", "300", Hints(deadline_ms=300)),
        ("x-headrace-deadline-ms", "86400000", Hints(deadline_ms=86400000)),
        ("x-llm-d-slo-ttft-ms", "0.5", Hints(deadline_ms=0.5)),
        ("x-headrace-path", "HOT", Hints(path=CachePath.HOT)),
        ("x-headrace-pool", "low-latency", Hints(pool="low-latency")),
        ("x-headrace-backend", "127.0.0.1:8001", Hints(backend="127.0.0.1:8001")),
        ("x-llm-d-inference-fairness-id", "team", Hints(fairness="team")),
        ("x-headrace-relegate", "true", Hints(relegate=True)),
        ("x-headrace-relegate", " 1", Hints(relegate=True)),
        ("x-headrace-history", "Server ", Hints(history=True)),
        ("x-headrace-session-seq", " 7", Hints(session_seq="7")),
        ("x-headrace-session-seq", "seven", Hints(session_seq="seven")),
    ],
)
def test_every_header_says_its_hint(name: str, value: str, said: Hints) -> None:
    assert hints([(b"host", b"h"), (name.encode(), value.encode()), (b"accept", b"*/*")]) == said


def test_every_header_of_the_table_is_tried_above() -> None:
    [mark] = getattr(test_every_header_says_its_hint, "pytestmark")  # noqa: B009  # not in its type
    assert {case[0] for case in mark.args[1]} == {name.decode() for name in NAMES}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-headrace-business", b""),
        ("x-headrace-business", b"a b"),
        ("x-headrace-business", "信用卡".encode()),
        ("x-headrace-business", b"x" * (MAX_TEXT + 1)),
        ("x-headrace-lane", b"1"),
        ("x-headrace-lane", b"\xff"),
        ("x-dynamo-request-priority", b"1.5"),
        ("x-dynamo-request-priority", b"9" * 5000),
        ("priority", b"u=8"),
        ("priority", b"u=1.5"),
        ("priority", b"u=10"),
        ("priority", b"au=1"),
        ("priority", b"1"),
        ("x-headrace-deadline-ms", b"0"),
        ("x-headrace-deadline-ms", b"-1"),
        ("x-headrace-deadline-ms", b"1e3"),
        ("x-headrace-deadline-ms", b"nan"),
        ("x-headrace-deadline-ms", b"86400001"),
        ("x-headrace-deadline-ms", "٣".encode()),
        ("x-headrace-path", b"warm"),
        ("x-headrace-relegate", b"false"),
        ("x-headrace-history", b"client"),
    ],
)
def test_what_is_malformed_was_not_said(name: str, value: bytes) -> None:
    assert hints([(name.encode(), value)]) == NO_HINTS


@pytest.mark.parametrize(
    ("fields", "rises", "lane"),
    [
        ({"service_tier": "priority"}, False, Lane.INTERACTIVE),
        ({"service_tier": "flex"}, False, Lane.BATCH),
        ({"service_tier": "auto"}, False, None),
        ({"service_tier": ["flex"]}, False, None),
        ({"priority": -1}, False, Lane.INTERACTIVE),
        ({"priority": 5}, False, Lane.BATCH),
        ({"priority": 5}, True, Lane.INTERACTIVE),
        ({"priority": -5}, True, Lane.BATCH),
        ({"priority": 0}, False, None),
        ({"priority": True}, True, None),
        ({"priority": 1.5}, True, None),
        ({"priority": "high"}, True, None),
        ({"service_tier": "flex", "priority": -1}, False, Lane.BATCH),
        ({"service_tier": "auto", "priority": -1}, False, Lane.INTERACTIVE),
        ({"model": "m"}, False, None),
    ],
)
def test_the_body_speaks_of_the_lane(fields: dict[str, object], rises: bool, lane: Lane | None) -> None:
    assert hints([], fields, rises) == Hints(lane=lane)


def test_a_header_counts_more_than_the_body() -> None:
    assert hints([(b"priority", b"u=7")], {"priority": -1}).lane is Lane.BATCH
    assert hints([(b"priority", b"u=3")], {"priority": -1}).lane is Lane.INTERACTIVE


@given(st.permutations(NAMES))
def test_of_two_headers_the_one_that_stands_higher_in_the_table_counts(order: list[bytes]) -> None:
    values = {
        b"x-headrace-business": b"first", b"x-business-type": b"second",
        b"x-headrace-lane": b"batch", b"x-priority": b"high", b"x-smg-priority": b"system",
        b"x-headrace-session": b"first", b"x-session-id": b"second",
        b"x-headrace-deadline-ms": b"1", b"x-llm-d-slo-ttft-ms": b"2",
    }  # fmt: skip
    said = hints([(name, values.get(name, b"")) for name in order])
    assert said == Hints(business="first", lane=Lane.BATCH, session="first", deadline_ms=1)


def test_a_malformed_header_leaves_it_to_the_next_one_and_the_first_of_a_name_counts() -> None:
    assert hints([(b"x-headrace-lane", b"?"), (b"x-priority", b"low")]).lane is Lane.BATCH
    assert hints([(b"x-priority", b"low"), (b"x-priority", b"high")]).lane is Lane.BATCH


def test_only_a_name_asks_for_the_emergency_lane() -> None:
    for number in range(-9, 10):
        text = b"%d" % number
        for header in ((b"priority", b"u=" + text), (b"x-dynamo-request-priority", text)):
            assert hints([header]).lane is not Lane.EMERGENCY
        assert hints([], {"priority": number}).lane is not Lane.EMERGENCY


VALUES = st.binary(max_size=20) | st.sampled_from(
    [b"high", b"u=1", b"5", b"true", b"hot", b"1.", b"+", b"-0"]
)
ANYTHING: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES) | st.binary(max_size=5), VALUES)),
    st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), ANYTHING),
    st.booleans(),
)  # fmt: skip
def test_nothing_a_client_sends_raises_or_leaves_its_bounds(
    headers: list[tuple[bytes, bytes]], fields: dict[str, Any], rises: bool
) -> None:
    said = hints(headers, fields, rises)
    for text in (said.business, said.session, said.tenant, said.pool, said.backend, said.fairness):
        assert len(text) <= MAX_TEXT and text.isascii() and text.isprintable() and " " not in text
    assert said.deadline_ms is None or 0 < said.deadline_ms <= MAX_DEADLINE_MS
    assert said.path in (None, *CachePath)
    if not {name for name, _ in headers} & set(NAMES) and not fields.keys() & set(FIELDS):
        assert said is NO_HINTS
