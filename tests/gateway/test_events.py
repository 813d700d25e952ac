"""What is noticed in a stream must not depend on where TCP cut it, and every byte but a kept-back event passes."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.events import HELD_LIMIT_BYTES, EventReader
from gateway.usage import Usage
from tests import captures
from tests.captures import Capture
from tests.strategies import cuts, event_streams, pieces

STREAMS = [
    capture
    for engine in captures.ENGINES
    for capture in captures.load(engine)
    if capture.is_stream and capture.answer_body
]
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
DONE = b"data: [DONE]\n\n"
TOKEN = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'


class Seen(NamedTuple):
    passed: bytes
    usage: Usage | None
    error: dict[str, Any] | None
    done: bool
    finished: bool


def read(parts: list[bytes], keep_usage_back: bool = False) -> Seen:
    reader = EventReader(keep_usage_back)
    passed = b"".join([reader.feed(part) for part in parts])
    finished = reader.finished
    passed += reader.flush()
    return Seen(passed, reader.usage, reader.error, reader.done, finished or reader.finished)


def same_for_every_single_cut(stream: bytes, keep_usage_back: bool) -> None:
    whole = read([stream], keep_usage_back)
    for at in range(1, len(stream)):
        assert read([stream[:at], stream[at:]], keep_usage_back) == whole, at


@pytest.mark.parametrize("capture", STREAMS, ids=lambda capture: capture.id)
def test_a_captured_stream_passes_unchanged_and_is_read_the_same_wherever_it_is_cut(capture: Capture) -> None:
    stream = capture.answer_body
    whole = read([stream])
    assert whole.passed == stream
    assert whole.done == (b"data: [DONE]" in stream)
    assert (whole.error is not None) == (b'data: {"error"' in stream)
    for at in range(1, len(stream), 1 + len(stream) // 1000):
        assert read([stream[:at], stream[at:]]) == whole, at
    for size in (1 + len(stream) // 2000, 997):
        assert read([stream[at : at + size] for at in range(0, len(stream), size)]) == whole


@pytest.mark.parametrize("capture", STREAMS, ids=lambda capture: capture.id)
def test_of_a_captured_stream_only_the_usage_event_is_kept_back(capture: Capture) -> None:
    stream = capture.answer_body
    kept = read([stream], keep_usage_back=True)
    expected: list[bytes] = []
    for event in stream.split(b"\n\n"):
        if b'"choices":[]' not in event or b'"prompt_tokens"' not in event:
            expected.append(event)
        elif fingerprint := re.search(rb',"system_fingerprint":"[^"]*"', event):
            assert b'"system_fingerprint"' not in expected[-1], "vLLM puts it into the last event alone"
            expected[-1] = expected[-1][:-1] + fingerprint[0] + b"}"
    assert kept.passed == b"\n\n".join(expected)
    assert kept._replace(passed=b"") == read([stream])._replace(passed=b"")
    size = 1 + len(stream) // 2000
    assert read([stream[at : at + size] for at in range(0, len(stream), size)], keep_usage_back=True) == kept


@pytest.mark.parametrize("engine", captures.ENGINES)
def test_a_stream_with_usage_kept_back_is_what_the_engine_sends_unasked(engine: str) -> None:
    """But for id and time, and the tokens of another run: the keys of each event, and its place."""
    asked, unasked = (
        next(one for one in STREAMS if one.engine == engine and one.name == name)
        for name in ("stream-usage", "stream")
    )
    kept = read([asked.answer_body], keep_usage_back=True).passed

    def shapes(stream: bytes) -> list[list[str] | bytes]:
        events = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event]
        return [event if event == b"[DONE]" else list(json.loads(event)) for event in events]

    assert shapes(kept) == shapes(unasked.answer_body)


def test_the_event_with_the_finish_reason_waits_for_the_next_one_and_is_not_lost() -> None:
    usage = USAGE[:-1] + b',"system_fingerprint":"v1"}\n\n'
    reader = EventReader(keep_usage_back=True)
    assert reader.feed(TOKEN) == TOKEN
    assert reader.feed(STOP) == b""
    assert reader.feed(usage) == STOP[:-3] + b',"system_fingerprint":"v1"}\n\n'
    assert reader.feed(DONE) == DONE

    for following in (DONE, TOKEN, USAGE + b"\n\n"):
        kept = read([STOP, following], keep_usage_back=True)
        assert kept.passed == STOP + (b"" if following.startswith(USAGE) else following)
    reader = EventReader(keep_usage_back=True)
    assert (reader.feed(STOP), reader.take_finish(), reader.take_finish()) == (b"", STOP, b"")
    assert read([STOP], keep_usage_back=True).passed == STOP
    assert EventReader(keep_usage_back=False).feed(STOP) == STOP


def test_of_several_choices_the_first_to_finish_gets_the_fingerprint_that_the_stream_before_ended_with() -> (
    None
):
    usage = USAGE[:-1] + b',"system_fingerprint":"v2"}\n\n'
    stamped = STOP[:-3] + b',"system_fingerprint":"v%d"}\n\n'
    reader = EventReader(keep_usage_back=True)
    assert reader.feed(STOP + TOKEN + STOP + usage + DONE) == STOP + TOKEN + stamped % 2 + DONE
    assert reader.fingerprint == "v2"
    reader = EventReader(keep_usage_back=True, fingerprint="v1")
    assert reader.feed(STOP + TOKEN + STOP + usage + DONE) == stamped % 1 + TOKEN + stamped % 2 + DONE
    reader = EventReader(keep_usage_back=True, fingerprint="v1")
    own = STOP[:-3] + b',"system_fingerprint":"own"}\n\n'
    assert reader.feed(own + DONE) == own + DONE


@settings(deadline=None, max_examples=300)
@given(st.data(), event_streams(), st.booleans())
def test_any_stream_is_read_the_same_however_it_is_cut(
    data: st.DataObject, stream: bytes, keep_usage_back: bool
) -> None:
    whole = read([stream], keep_usage_back) if stream else Seen(b"", None, None, False, False)
    assert keep_usage_back or whole.passed == stream
    assert read(pieces(stream, data.draw(cuts(len(stream)))), keep_usage_back) == whole
    assert read([stream[at : at + 1] for at in range(len(stream))], keep_usage_back) == whole


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_are_line_ends(end: bytes) -> None:
    stream = (TOKEN + USAGE + b"\n\n" + DONE).replace(b"\n", end)
    seen = read([stream], keep_usage_back=True)
    assert seen == (TOKEN.replace(b"\n", end) + DONE.replace(b"\n", end), Usage(3, 2, 0), None, True, True)
    same_for_every_single_cut(stream, True)


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_what_only_python_takes_for_a_line_end_is_content(char: str) -> None:
    event = f'data: {{"choices":[],"x":"a{char}b{char}{char}","usage":{{"prompt_tokens":1}}}}\n\n'.encode()
    assert read([event], keep_usage_back=True).passed == (b"" if char > "\x1f" else event)
    same_for_every_single_cut(TOKEN + event, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b": keep-alive\n\n", b""),
        (b": keep-alive\n", b""),
        (b"", b": keep-alive\n\n"),
        (b": a\n: b\n\n", b": c\n\n"),
        (b"\n\n", b"\n"),
    ],
)
def test_comments_and_blank_lines_pass_even_where_the_event_beside_them_does_not(
    before: bytes, after: bytes
) -> None:
    stream = TOKEN + before + USAGE + b"\n\n" + after + DONE
    assert read([stream], keep_usage_back=True).passed == TOKEN + before + after + DONE
    same_for_every_single_cut(stream, True)


def test_a_comment_passes_at_once_while_the_event_after_it_is_still_coming() -> None:
    reader = EventReader(keep_usage_back=True)
    assert reader.feed(b": keep-alive\n") == b": keep-alive\n"
    assert reader.feed(b"\n: again\r\n\r\n") == b"\n: again\r\n\r\n"
    assert reader.feed(b"data: {") == b""
    assert reader.feed(b'"choices":[1]}\n\n') == b'data: {"choices":[1]}\n\n'


def test_a_whole_event_passes_at_once() -> None:
    reader = EventReader(keep_usage_back=True)
    assert reader.feed(TOKEN) == TOKEN
    assert reader.feed(TOKEN + TOKEN[:9]) == TOKEN
    assert reader.feed(TOKEN[9:-1]) == b""
    assert reader.feed(b"\n") == TOKEN


def test_a_last_event_without_its_blank_line_counts_and_passes() -> None:
    for ending in (b"data: [DONE]", b"data: [DONE]\n"):
        assert read([STOP, ending]) == (STOP + ending, None, None, True, True)
    assert read([TOKEN, USAGE], keep_usage_back=True) == (TOKEN, Usage(3, 2, 0), None, False, True)
    assert read([b'data: {"error":{"code":500}}\n']).error == {"code": 500}


@pytest.mark.parametrize(
    "choices",
    ["", '"choices":null,', '"choices":"text",', '"choices":{},', '"choices":[{}],', '"choices":0,'],
)
def test_a_usage_beside_anything_but_empty_choices_is_the_clients(choices: str) -> None:
    event = f'data: {{{choices}"usage":{{"prompt_tokens":9,"completion_tokens":1}}}}\n\n'.encode()
    assert read([event], keep_usage_back=True) == (event, Usage(9, 1, 0), None, False, False)


def test_a_usage_event_that_the_client_asked_for_passes() -> None:
    assert read([USAGE + b"\n\n" + DONE]).passed == USAGE + b"\n\n" + DONE


@pytest.mark.parametrize(
    "data", [b"[]", b"null", b'"text"', b"7", b"{", b"[DONE", b"[DONE] ", b'["error"]', b'"\\"prompt_tokens\\""', b""]
)  # fmt: skip
def test_events_that_are_not_objects_pass(data: bytes) -> None:
    event = b"data: " + data + b'\n\ndata: "error"\n\n'
    assert read([event], keep_usage_back=True) == (event, None, None, False, False)


@pytest.mark.parametrize("error", [b'{"message":"m","code":500}', b'{"object":"error","message":"m"}', b"{}"])
def test_an_error_event_is_noticed_and_passes(error: bytes) -> None:
    event = b'data: {"error":' + error + b"}\n\n"
    seen = read([TOKEN + event + DONE])
    assert (seen.passed, seen.done) == (TOKEN + event + DONE, True)
    assert seen.error is not None
    assert read([b'data: {"error":null,"choices":[]}\n\n']).error is None
    assert read([b'data: {"choices":[{"delta":{"content":"\\"error\\": {}"}}]}\n\n']).error is None


@pytest.mark.parametrize(
    ("stream", "finished"),
    [
        (TOKEN, False),
        (TOKEN + STOP, True),
        (TOKEN + DONE, True),
        (TOKEN + USAGE + b"\n\n", True),
        (STOP + TOKEN, False),
        (STOP + b": keep-alive\n\n", True),
        (b": keep-alive\n\n" + STOP, True),
        (STOP + b"event: ping\n\n", True),
        (STOP[:-30], False),
        (b'data: {"choices":[{"delta":{"content":"\\"finish_reason\\":\\"stop\\""}}]}\n\n', False),
        (
            b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n',
            False,
        ),
    ],
)
def test_an_answer_is_whole_if_its_end_says_so(stream: bytes, finished: bool) -> None:
    assert read([stream]).finished is finished
    same_for_every_single_cut(stream, False)
    assert read([stream[at : at + 1] for at in range(len(stream))]).finished is finished


@pytest.mark.parametrize("length", [HELD_LIMIT_BYTES + 1, 3 * HELD_LIMIT_BYTES, 200_000])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_a_long_event_passes_with_its_end_cut_anywhere_and_what_follows_is_noticed(
    length: int, end: bytes
) -> None:
    long = b'data: {"choices":[{"delta":{"content":"' + b"x" * length + b'"}}]}' + end
    stream = long + USAGE + end + b"data: [DONE]" + end
    expected = (long + b"data: [DONE]" + end, Usage(3, 2, 0), None, True, True)
    for at in range(len(long) - 6, len(long) + 6):
        for first in (10, HELD_LIMIT_BYTES + 40):
            parts = [stream[:first], stream[first:at], stream[at:]]
            assert read([part for part in parts if part], keep_usage_back=True) == expected
    sized = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert read(sized, keep_usage_back=True) == expected


def test_no_more_than_the_limit_is_held() -> None:
    reader = EventReader(keep_usage_back=True)
    sent = passed = 0
    for _ in range(100):
        passed += len(reader.feed(b"data: " + b"x" * 994))
        sent += 1000
        assert sent - passed <= HELD_LIMIT_BYTES


def test_a_long_last_event_that_says_the_answer_is_whole_is_believed() -> None:
    long = b'data: {"choices":[{"text":"' + b"x" * 50_000 + b'","finish_reason":"length"}]}\n\n'
    for size in (len(long), 5000, 499):
        assert read([long[at : at + size] for at in range(0, len(long), size)]).finished
        assert not read([(long + TOKEN)[at : at + size] for at in range(0, len(long + TOKEN), size)]).finished
