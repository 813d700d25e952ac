"""What a session keeps of an answer is what a client reads out of it, however the bytes were cut."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sessions.capture import StreamCapture, plain_message
from tests import captures
from tests.captures import Capture

LIMIT = 256 * 1024
CHATS = [
    capture
    for engine in captures.ENGINES
    for capture in captures.load(engine)
    if capture.target == "/v1/chat/completions"
    and capture.status == 200
    and b"content-encoding" not in {name.lower() for name, _ in capture.answer.headers}
    and (capture.is_stream or capture.answer_body.startswith(b"{"))
]
STREAMS = [capture for capture in CHATS if capture.is_stream and b'"error"' not in capture.answer_body]
PLAIN = [capture for capture in CHATS if not capture.is_stream]


def capture_of(*parts: bytes, limit: int = LIMIT, choices: int = 1) -> StreamCapture:
    capture = StreamCapture(limit, choices)
    for part in parts:
        capture.feed(part)
    return capture


def heard(body: bytes) -> dict[str, Any]:
    """Choice 0 of a stream with plain events, put together as a client does."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for text in re.findall(rb"^data: (\{.*)$", body, re.MULTILINE):
        for choice in json.loads(text)["choices"]:
            if choice["index"] == 0:
                for name, value in choice["delta"].items():
                    if name in ("content", "reasoning_content", "reasoning") and value:
                        message[name] = (message.get(name) or "") + value
                    for call in (value or []) if name == "tool_calls" else []:
                        calls = message.setdefault("tool_calls", [])
                        function = call["function"]
                        if call["index"] == len(calls):
                            calls.append(
                                {
                                    "id": call["id"],
                                    "type": "function",
                                    "function": {"name": function["name"], "arguments": ""},
                                }
                            )
                        calls[call["index"]]["function"]["arguments"] += function.get("arguments") or ""
    if "tool_calls" not in message:
        message["content"] = message["content"] or ""
    return message


def event(*choices: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + orjson.dumps({"choices": list(choices), **more}) + b"\n\n"


def delta(index: int = 0, finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "finish_reason": finish}


def message_of(capture: StreamCapture, is_cut: bool = False) -> Any:
    capture.end()
    text = capture.message(is_cut)
    return None if text is None else json.loads(text)


def test_there_are_captures_of_both_engines() -> None:
    assert len(STREAMS) > 10 and len(PLAIN) > 10


@pytest.mark.parametrize("capture", STREAMS, ids=lambda capture: capture.id)
def test_a_stream_is_kept_as_a_client_hears_it_wherever_it_is_cut(capture: Capture) -> None:
    body = capture.answer_body
    expected = heard(body)
    assert message_of(capture_of(*[body[at : at + 1] for at in range(len(body))])) == expected
    for at in range(0, len(body), max(7, len(body) // 50)):
        assert message_of(capture_of(body[:at], body[at:])) == expected
    whole = capture_of(body)
    assert whole.has_finish and not whole.is_broken and not whole.too_large


@pytest.mark.parametrize("capture", PLAIN, ids=lambda capture: capture.id)
def test_a_plain_answers_message_is_kept_without_what_says_nothing(capture: Capture) -> None:
    kept = plain_message(capture.answer_body)
    assert kept is not None
    message = json.loads(capture.answer_body)["choices"][0]["message"]
    expected = {
        name: value
        for name, value in message.items()
        if (value is not None or name == "content") and not (name == "tool_calls" and value == [])
    }
    assert json.loads(kept) == expected
    assert all(piece in capture.answer_body for piece in re.findall(rb'"content":"(?:[^"\\]|\\.)*"', kept))


def test_every_byte_cut_of_two_gives_the_same_message() -> None:
    body = (
        b": hello\r\n\r\n" + event(delta(role="assistant", content="")).replace(b"\n", b"\r\n")
        + event(delta(content="a\u2028\r\nb")).replace(b"\n", b"\r\n") + b"event: x\rid: 1\rdata: {\"choices\":[{\"index\":0,\rdata: \"delta\":{\"content\":\"c\"}}]}\r\r"
        + event(delta(content="d", finish="stop"), usage={"prompt_tokens": 1}) + b"data: [DONE]"
    )  # fmt: skip
    for at in range(len(body)):
        capture = capture_of(body[:at], body[at:])
        assert message_of(capture) == {"role": "assistant", "content": "a\u2028\r\nbcd"}, at
        assert capture.has_finish


def test_the_last_event_may_lack_its_blank_line() -> None:
    for ending in (b"", b"\n", b"\r", b"\r\n"):
        body = event(delta(content="a")) + event(delta(content="b", finish="stop")).rstrip() + ending
        assert message_of(capture_of(body)) == {"role": "assistant", "content": "ab"}


def test_tool_calls_are_put_together_by_index() -> None:
    parts = [
        delta(role="assistant", content=None, reasoning_content="let me "),
        delta(reasoning_content="see", refusal="no"),
        delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{"}}]),
        delta(tool_calls=[{"index": 0, "id": None, "function": {"name": None, "arguments": '{"x":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "function": {"name": "g", "arguments": "}"}}]),
        delta(finish="tool_calls"),
    ]  # fmt: skip
    capture = capture_of(*map(event, parts))
    capture.end()
    assert json.loads(capture.message() or b"") == {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "reasoning_content": "let me see",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    cut = json.loads(capture.message(is_cut=True) or b"")
    assert "tool_calls" not in cut and cut["content"] == "" and cut["reasoning_content"] == "let me see"


def test_of_several_choices_the_first_is_kept_and_all_have_to_finish() -> None:
    capture = capture_of(
        event(delta(0, content="a"), delta(1, content="x")), event(delta(0, "stop", content="b")), choices=2
    )
    assert not capture.has_finish
    capture.feed(event(delta(1, "length", content="y")))
    assert capture.has_finish and message_of(capture) == {"role": "assistant", "content": "ab"}
    body = orjson.dumps(
        {"choices": [{"index": 1, "message": {"role": "a"}}, {"index": 0, "message": {"role": "b"}}]}
    )
    assert plain_message(body) == b'{"role":"b"}'


def test_an_answer_that_the_engine_gave_up_is_known_as_such() -> None:
    assert capture_of(event(delta(content="a", finish="abort"))).is_broken
    assert capture_of(event(delta(content="a")), b'data: {"error":{"message":"x","code":500}}\n\n').is_broken
    given_up = {"choices": [{"index": 0, "message": {"role": "assistant"}, "finish_reason": "abort"}]}
    assert plain_message(orjson.dumps(given_up)) is None


def test_what_came_of_a_cut_stream_is_kept_and_nothing_of_one_without_a_word() -> None:
    body = (
        event(delta(role="assistant", content="")) + event(delta(content="ab")) + b'data: {"choices":[{"ind'
    )
    capture = capture_of(body)
    assert json.loads(capture.message(is_cut=True) or b"") == {"role": "assistant", "content": "ab"}
    assert capture_of(event(delta(role="assistant", content=""))).message(is_cut=True) is None


def test_a_message_beyond_the_limit_is_not_kept_and_its_end_is_still_noticed() -> None:
    parts = [event(delta(content="abcdefgh"))] * 4
    assert message_of(capture_of(*parts, limit=32)) == {"role": "assistant", "content": "abcdefgh" * 4}
    for long in (
        event(delta(content="x")),
        event(delta(tool_calls=[{"index": 0, "id": "1"}])),
        b"data: " + b"x" * 40_000,
    ):
        capture = capture_of(*parts, long, limit=32)
        assert capture.too_large and capture.message() is None
        capture.feed(b"y" * 100_000 + b"\n\n" + event(delta(finish="stop")))
        assert capture.has_finish and capture.message() is None


def test_members_that_are_not_known_are_kept_as_they_are_written() -> None:
    message = b'{"role":"assistant", "x" : [1.0e2,"\\u00e9\\/"] ,"content":"\\ud83d\\ude00","tool_calls":[],"audio":null}'
    kept = plain_message(
        b'{"choices":[{"logprobs":{"content":[{"message":1}]},"message": %b ,"index":0}]}' % message
    )
    assert kept == b'{"role":"assistant", "x" : [1.0e2,"\\u00e9\\/"] ,"content":"\\ud83d\\ude00"}'
    assert (
        plain_message(b'{"choices":[{"message":{"content":null,"role":"assistant"}}]}')
        == b'{"content":null,"role":"assistant"}'
    )


def test_halves_of_a_character_that_came_apart_are_one_again() -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n' + (
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n'
    )
    assert message_of(capture_of(body)) == {"role": "assistant", "content": "\U0001f600"}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b"{}", b'{"choices":[]}', b'{"choices":{}}', b'{"choices":[1,null]}', b'{"choices":[{"index":0}]}',
     b'{"choices":[{"message":[]}]}', b'{"choices":[{"index":1,"message":{}}]}', b"\xff", b"[" * 100_000, b'"\\u0041"', b'["\\n"]'],
)  # fmt: skip
def test_an_answer_without_a_message_is_no_message(body: bytes) -> None:
    assert plain_message(body) is None


@given(
    st.lists(
        st.binary(max_size=30)
        | st.sampled_from([b"data: ", b"\n\n", b"\r", b'{"choices":[', b'{"delta":{"tool_calls":[{', b"}]}"]),
        max_size=20,
    )
)
def test_no_stream_makes_it_raise(parts: list[bytes]) -> None:
    capture = capture_of(*parts)
    capture.end()
    capture.message()
    capture.message(is_cut=True)


def test_an_event_of_countless_lines_is_given_up_and_what_follows_is_read() -> None:
    capture = StreamCapture(1000)
    for _ in range(1000):
        capture.feed(b"data: " + b"x" * 1000 + b"\n")
        assert sum(map(len, capture._data)) < 20_000
    assert capture.too_large
    capture.feed(b'\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
    assert capture.has_finish and capture.message() is None
