"""Which headers pass, which stop, which are made."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.headers import (
    ENGINE_OVERRIDES,
    GATEWAY_ALIASES,
    HOP_BY_HOP,
    OVERRIDE_PREFIXES,
    answer_headers,
    forwarded,
    header_lines,
    request_head,
    usable_request_id,
)
from tests.framing import HEAD_END, Head, parse_head

Pairs = list[tuple[bytes, bytes]]

STOPPED = [
    *sorted(HOP_BY_HOP),
    *sorted(GATEWAY_ALIASES),
    *sorted(ENGINE_OVERRIDES),
    b"host",
    b"content-length",
    b"expect",
    b"x-request-id",
    b"x-headrace-business",
    b"x-headrace-lane",
    b"x-headrace-",
    b"x-override-priority",
    b"x-override-rid",
    b"x-override-routed-dp-rank",
    b"x-override-disagg-prefill-dp-rank",
    b"x-override-bootstrap-host",
    b"x-override-bootstrap-port",
    b"x-override-bootstrap-room",
    b"x-override-conversation-id",
    b"x-smg-routing-key",
    b"x-smg-priority",
    b"x-smg-target-worker",
]
PASSED = [
    b"endpoint-load-metrics-format",
    b"accept",
    b"accept-encoding",
    b"authorization",
    b"content-type",
    b"cookie",
    b"user-agent",
    b"traceparent",
    b"tracestate",
    b"x-body-compressed",
    b"x-forwarded-for",
    b"x-headrace",
    b"x-unknown",
    b"openai-organization",
]
NAMES = st.sampled_from(STOPPED + PASSED) | st.from_regex(rb"[a-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True)
VALUES = st.from_regex(rb"[\x21-\x7e\x80-\xff]([\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?", fullmatch=True)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


def head_of(headers: Pairs, authorization: bytes = b"", length: int | None = 5) -> Head:
    passed = [pair for pair in headers if not authorization or pair[0] != b"authorization"]
    raw = request_head(
        "POST", b"/v1/x?y=1", b"engine:8000", header_lines(passed), length, "id-1", authorization
    )
    assert raw.endswith(HEAD_END) and raw.count(HEAD_END) == 1
    return parse_head(raw.removesuffix(HEAD_END))


@pytest.mark.parametrize("name", STOPPED)
def test_what_belongs_to_this_hop_the_gateway_or_the_operator_stops_here(name: bytes) -> None:
    assert forwarded([(b"a", b"1"), (name, b"x"), (b"b", b"2")]) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("name", PASSED)
def test_everything_else_passes(name: bytes) -> None:
    assert forwarded([(name, b"x")]) == [(name, b"x")]


def test_order_and_duplicates_stay() -> None:
    pairs = [(b"x-a", b"1"), (b"cookie", b"2"), (b"x-a", b"3"), (b"x-a", b"1")]
    assert forwarded(pairs) == pairs
    assert head_of(pairs).headers[1:5] == pairs


@pytest.mark.parametrize(
    ("connection", "stopped"),
    [
        ([b"x-a"], {b"x-a"}),
        ([b"close, X-A"], {b"x-a"}),
        ([b"keep-alive ,\tx-b"], {b"x-b"}),
        ([b"x-a", b"x-b"], {b"x-a", b"x-b"}),
        ([b"close"], set()),
        ([b"Keep-Alive"], set()),
        ([b""], set()),
        ([b",,"], set()),
    ],
)
def test_what_connection_names_is_of_this_hop_in_both_directions(
    connection: list[bytes], stopped: set[bytes]
) -> None:
    other = [(b"x-a", b"1"), (b"x-b", b"2"), (b"x-c", b"3")]
    pairs = [other[0], *((b"connection", value) for value in connection), *other[1:]]
    expected = [pair for pair in other if pair[0] not in stopped]
    assert forwarded(pairs) == expected
    assert answer_headers(pairs, drop_length=False) == expected


@given(HEADERS)
def test_no_stopped_name_is_ever_in_the_head_of_an_attempt_but_where_the_gateway_makes_it(
    headers: Pairs,
) -> None:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    head = head_of(forwarded(headers))
    made = [(b"host", b"engine:8000"), (b"content-length", b"5"), (b"x-request-id", b"id-1")]
    assert [head.headers[0], *head.headers[-2:]] == made
    assert head.start_line == b"POST /v1/x?y=1 HTTP/1.1"
    passed = head.headers[1:-2]
    assert not {name for name, _ in passed} & {*STOPPED, *named}
    assert not [name for name, _ in passed if name.startswith((b"x-headrace-", *OVERRIDE_PREFIXES))]
    stopped = {*STOPPED, *named}
    assert passed == [
        (name, value.strip(b" \t"))
        for name, value in headers
        if name not in stopped and not name.startswith((b"x-headrace-", *OVERRIDE_PREFIXES))
    ]


def test_a_backends_key_takes_the_place_of_the_clients() -> None:
    pairs = [(b"authorization", b"Bearer client"), (b"x-a", b"1"), (b"authorization", b"Basic again")]
    assert head_of(pairs).values(b"authorization") == [b"Bearer client", b"Basic again"]
    assert head_of(pairs, b"Bearer engine").values(b"authorization") == [b"Bearer engine"]
    assert head_of([], b"Bearer engine").values(b"authorization") == [b"Bearer engine"]


def test_a_request_without_a_body_has_no_length() -> None:
    assert head_of([], length=None).value(b"content-length") is None
    assert head_of([], length=0).value(b"content-length") == b"0"


@given(HEADERS, st.booleans())
def test_an_engines_headers_reach_the_client_but_for_those_of_its_own_hop(headers: Pairs, drop: bool) -> None:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    stopped = HOP_BY_HOP | named | {b"x-request-id"} | ({b"content-length"} if drop else set())
    assert answer_headers(headers, drop) == [
        pair for pair in headers if pair[0] not in stopped and not pair[0].startswith(b"x-headrace-")
    ]


@pytest.mark.parametrize(
    ("value", "usable"),
    [
        (b"a", True),
        (b"3f2c:x/y{}\"\\'~!", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"a\tb", False),
        (b"a\n", False),
        (b"\x7f", False),
        ("é".encode(), False),
        (b"\x00", False),
    ],
)
def test_a_clients_request_id_is_kept_if_it_can_be_logged_and_echoed(value: bytes, usable: bool) -> None:
    assert usable_request_id(value) is usable


@given(st.binary(max_size=140))
def test_a_usable_request_id_is_short_and_printable(value: bytes) -> None:
    expected = len(value) <= 128 and re.fullmatch(rb"[\x21-\x7e]+", value) is not None
    assert usable_request_id(value) is expected
