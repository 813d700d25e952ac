"""A moment of fuzzing within the suite; `python -m tests.fuzz` goes on for as long as it is given."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.fuzz import strict
from tests.fuzz.__main__ import mutated
from tests.fuzz.corpus import ANSWERS, FRAGMENTS, PIPELINE, seeds
from tests.fuzz.targets import TARGETS
from tests.fuzz.wire import answered, served

CUTS = st.lists(st.integers(0, 2000), max_size=3)
EXAMPLES = {"front": 40, "engine": 40, "configuration": 30, "body": 40, "events": 40}


def made_of(target: str) -> st.SearchStrategy[bytes]:
    """Fragments in any order, behind the beginning of something sound or behind nothing."""
    parts = st.sampled_from(list(FRAGMENTS[target])) | st.binary(max_size=3)
    starts = st.sampled_from([b"", *seeds(target)[:20]])
    return st.builds(
        lambda start, keep, items: start[:keep] + b"".join(items),
        starts,
        st.integers(0, 600),
        st.lists(parts, max_size=12),
    )


@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_break_what_is_promised(target: str) -> None:
    @examples(max_examples=EXAMPLES.get(target, 60), deadline=None)
    @given(made_of(target), CUTS)
    def holds(data: bytes, cuts: list[int]) -> None:
        TARGETS[target](data, cuts)

    holds()


@pytest.mark.parametrize("target", TARGETS)
def test_no_change_to_what_is_sound_breaks_it(target: str) -> None:
    chance = random.Random(7)
    found = seeds(target)[:20]
    for _ in range(EXAMPLES.get(target, 60) // 2):
        data = mutated(found, FRAGMENTS[target], chance)
        TARGETS[target](data, [chance.randrange(len(data) + 1)])


TOKENS = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=20)
NAMES = TOKENS.map(lambda name: "x-" + name)
VALUES = st.text("".join(map(chr, range(0x21, 0x7F))) + " \t", max_size=60).map(str.strip)
TARGETS_ASKED = st.text("azAZ09-._~!$&'()*+,;=:@/?%20", max_size=60).map(lambda rest: "/" + rest)
ASKED = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
    TARGETS_ASKED,
    st.lists(st.tuples(NAMES, VALUES), max_size=8),
    st.none() | st.binary(max_size=200) | st.lists(st.binary(min_size=1, max_size=60), max_size=5),
)


def sound(
    method: str, target: str, headers: list[tuple[str, str]], body: bytes | list[bytes] | None
) -> bytes:
    """A body in parts is chunked; every second of them has an extension, and there is a trailer."""
    lines = [f"{method} {target} HTTP/1.1", "Host: a", *[f"{name}: {value}" for name, value in headers]]
    if isinstance(body, bytes):
        lines.append(f"Content-Length: {len(body)}")
    elif body is not None:
        lines.append("Transfer-Encoding: chunked")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    if not isinstance(body, list):
        return head + (body or b"")
    chunks = [
        b"%x%b\r\n%b\r\n" % (len(part), b";a=b" * (number % 2), part) for number, part in enumerate(body)
    ]
    return head + b"".join(chunks) + b"0\r\nx-t: v\r\n\r\n"


@examples(max_examples=60, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=4), CUTS)
def test_whatever_is_sound_is_taken(asked: list[Any], cuts: list[int]) -> None:
    data = b"".join(sound(*one) for one in asked)
    places = sorted({0, len(data), *[cut for cut in cuts if cut < len(data)]})
    seen, written = served([data[start:end] for start, end in pairwise(places)])
    wanted = [
        (method.encode(), b"".join(body) if isinstance(body, list) else body or b"")
        for method, _, _, body in asked
    ]
    assert [(method, body) for method, _, _, body in seen] == wanted, written
    for (_, path, headers, _), (_, target, named, _) in zip(seen, asked, strict=True):
        assert path.decode() == target.partition("?")[0]
        told = [(name, value) for name, value in headers if name.startswith(b"x-")]
        assert told == [(name.lower().encode(), value.encode()) for name, value in named]


def test_what_is_sound_is_read_and_cut_anywhere_read_the_same() -> None:
    requests = strict.requests(PIPELINE)
    assert [request.body for request in requests] == [b"{}", b"{}", b""]
    for parts in ([PIPELINE], [PIPELINE[at : at + 1] for at in range(len(PIPELINE))]):
        seen, written = served(parts)
        assert [(method, body) for method, _, _, body in seen] == [(one.method, one.body) for one in requests]
        assert written.count(b"HTTP/1.1 200 OK\r\n") == 3
    for raw, reusable in zip(ANSWERS, (True, True, False), strict=True):
        for parts in ([raw], [raw[at : at + 1] for at in range(len(raw))]):
            read = answered(parts, True)
            assert read.is_complete and read.is_reusable is reusable
            assert strict.answer(raw, True) is not None


HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DISAGREEING = {
    "length beside chunks": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks beside length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "one length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "a length in hexadecimal": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "an empty length": HEAD + b"Content-Length:\r\n\r\n",
    "a length beyond 64 bits": HEAD + b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "a folded length": HEAD + b"Content-Length: 1\r\n 0\r\n\r\n0123456789",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a coding before chunked": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding in a line before": HEAD
    + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding after chunked": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding alone": HEAD + b"Transfer-Encoding: identity\r\n\r\nabc",
    "an odd blank before chunked": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a blank before the first field": b"POST / HTTP/1.1\r\n Content-Length: 0\r\n\r\n",
    "bare LF": b"POST / HTTP/1.1\nContent-Length: 0\n\n",
    "bare LF in the head": HEAD + b"X: a\nContent-Length: 3\r\n\r\nabc",
    "bare CR in the head": HEAD + b"X: a\rContent-Length: 3\r\n\r\nabc",
    "NUL": HEAD + b"X: a\0\r\nContent-Length: 0\r\n\r\n",
    "two hosts": HEAD + b"Host: b\r\nContent-Length: 0\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "HTTP/2": b"GET / HTTP/2.0\r\n\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT with a body": b"CONNECT a:1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "an upgrade in HTTP/1.0 with chunks": b"POST / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an upgrade with two framings": HEAD
    + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "bare LF after a size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "bare LF after a chunk": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "bare LF in an extension": CHUNKED + b"3;a\nabc\r\n0\r\n\r\n",
    "a quoted line end in an extension": CHUNKED + b'3;a="\r\nabc\r\n0\r\n\r\n',
    "a blank after a size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "a size with 0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a signed size": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "a size beyond 64 bits": CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "no size": CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n",
    "more than its size": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a length in the trailer": CHUNKED + b"0\r\nContent-Length: 3\r\n\r\nabc",
    "a coding in the trailer": CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
}


ONLY_REFUSED = {"CONNECT", "CONNECT with a body", "a length in the trailer", "a coding in the trailer"}
"""All servers read these alike; nobody needs them."""


@pytest.mark.parametrize("name", DISAGREEING)
@pytest.mark.parametrize("single", [False, True], ids=["at once", "byte by byte"])
def test_a_request_that_two_servers_may_read_differently_is_answered_400_and_reaches_nobody(
    name: str, single: bool
) -> None:
    raw = DISAGREEING[name]
    behind = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    data = raw + behind
    seen, written = served([data[at : at + 1] for at in range(len(data))] if single else [data])
    assert seen == []
    # Where its head was sound it had begun: then its answer is the end of the connection.
    assert written.startswith(b"HTTP/1.1 400 ") or (raw.startswith(CHUNKED) and written == b"")
    assert b"/smuggled" not in written
    assert (strict.requests(raw) != []) is (name in ONLY_REFUSED)


OF_ENGINES = {
    name: b"HTTP/1.1 200 OK\r\n" + raw[len(HEAD) - len(b"Host: a\r\n") :].removeprefix(b"Host: a\r\n")
    for name, raw in DISAGREEING.items()
    if raw.startswith(HEAD) and name not in ONLY_REFUSED | {"two hosts"} and "upgrade" not in name
} | {
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "an odd status": b"HTTP/1.1 0200 OK\r\nContent-Length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("raw", OF_ENGINES.values(), ids=OF_ENGINES.keys())
def test_an_answer_that_may_be_read_differently_is_never_whole(raw: bytes) -> None:
    for has_ended in (False, True):
        read = answered([raw], has_ended)
        assert not read.is_complete and not read.is_reusable
        assert strict.answer(raw, has_ended) is None


def test_what_follows_an_answer_ends_its_connection() -> None:
    sound = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    for behind in (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"H", b"x"):
        read = answered([sound + behind], False)
        assert not read.is_reusable
    assert answered([sound], False).is_reusable


def test_an_offer_of_an_upgrade_in_http_1_0_stays_http_1_0_and_is_the_last_request() -> None:
    one = b"GET / HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: h2c\r\n\r\n"
    seen, written = served([one, one])
    assert len(seen) == 1 and b"connection: close" in written
