"""What hypothesis may think of: JSON texts as odd as the grammar allows, event streams, cuts of bytes, shapes of a fleet.

A JSON text is drawn as text, not as a value: spacing, escapes, duplicate keys and number forms are the point, and a serialiser would
tidy them away.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

from hypothesis import strategies as st

from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan

SPACE = st.text(" \t\r\n", max_size=2)
NUMBERS = st.sampled_from(
    ["0", "-0", "-0.0", "1e400", "-1E+400", "123456789012345678901234567890", "0.1", "1.0", "2e-3", "7"]
) | st.integers().map(str)


@st.composite
def json_strings(draw: st.DrawFn, content: st.SearchStrategy[str]) -> str:
    """`content` as a JSON string, each character written plainly or escaped."""
    written = []
    for char in draw(content):
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        escaped = json.dumps(char)[1:-1] if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
        must_escape = 0xD800 <= ord(char) <= 0xDFFF
        written.append(escaped if must_escape or draw(st.integers(0, 3)) == 0 else plain)
    return '"' + "".join(written) + '"'


TEXTS = json_strings(
    st.text(st.characters(), max_size=4)
    | st.sampled_from(
        ['"', "\\", '\\"', "{", "}", "[", "]", ",", ":", '":"', "\ud800", "\u2028", "模型", "/"]
    )
)
KEYS = json_strings(
    st.sampled_from(["model", "stream_options", "stream", "mode", "models", "", "a", "é"])
    | st.text(max_size=2)
)
SCALARS = NUMBERS | TEXTS | st.sampled_from(["true", "false", "null"])


def _padded(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(SPACE, text, SPACE).map("".join)


def _joined(items: Iterable[str], opening: str, closing: str, empty: str) -> str:
    return opening + (",".join(items) or empty) + closing


@st.composite
def objects_of(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(_padded(KEYS), _padded(values)), max_size=4))
    return _joined((f"{key}:{value}" for key, value in members), "{", "}", draw(SPACE))


@st.composite
def arrays_of(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    return _joined(draw(st.lists(_padded(values), max_size=3)), "[", "]", draw(SPACE))


VALUES: st.SearchStrategy[str] = st.recursive(
    SCALARS, lambda inner: objects_of(inner) | arrays_of(inner), max_leaves=6
)
JSON_OBJECTS = _padded(objects_of(VALUES))
"""Texts of JSON objects."""


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[int]:
    """Offsets at which `length` bytes are cut."""
    return sorted(draw(st.sets(st.integers(1, max(1, length - 1)), max_size=8)))


def pieces(data: bytes, offsets: Iterable[int]) -> list[bytes]:
    """`data` cut at `offsets`; no piece is empty."""
    bounds = [0, *offsets, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds) if start < end]


_EVENT_LINES = st.sampled_from(
    [
        'data: {"choices":[{"delta":{"content":"a\u2028b\u2029c\u0085d"}}]}',
        'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
        'data: {"choices":[{"delta":{"content":"\\"error\\" [DONE] \\"prompt_tokens\\""},"finish_reason":null}]}',
        'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}',
        'data: {"choices":[{"index":0}],"usage":{"prompt_tokens":3,"completion_tokens":1}}',
        'data:{"usage":{"prompt_tokens":5,"completion_tokens":0},\ndata:"choices":[]}',
        'data: {"error":{"message":"dead","code":500}}',
        'data: {"error":null,"choices":[]}',
        "data: [DONE]",
        "data:[DONE]",
        "data: not json",
        "data",
        "event: message_start\ndata: {}",
        "id: 7",
    ]
)
_COMMENTS = st.sampled_from(["", ": keep-alive\n", ":\n", ": a\n: b\n", ": keep-alive\n\n", "\n", "\n\n"])


@st.composite
def event_streams(draw: st.DrawFn) -> bytes:
    """A stream of server-sent events with one kind of line end, comments anywhere, and maybe an end that is missing."""
    events = draw(st.lists(st.tuples(_COMMENTS, _EVENT_LINES), max_size=6))
    text = "".join(f"{comment}{lines}\n\n" for comment, lines in events) + draw(_COMMENTS)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"]))).encode()


@st.composite
def fleet_plans(draw: st.DrawFn) -> list[BackendPlan]:
    """Backends `b0`, `b1`, ... in two pools, a few of them left out."""
    ids = draw(st.lists(st.sampled_from(["b0", "b1", "b2", "b3"]), unique=True, max_size=4))
    window = st.none() | st.integers(1, 3)
    return [BackendPlan(BackendId(id), PoolName(draw(st.sampled_from("pq"))), draw(window)) for id in ids]
