"""What counts as tokens in the answers of every API, plain and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.events import EventReader
from gateway.usage import Usage, usage_from, usage_of
from tests.captures import ENGINES, Capture, load

ALL = {capture.id: capture for engine in ENGINES for capture in load(engine)}
COUNTED = {
    "vllm-0.32.0/responses": Usage(15, 8, 0),
    "vllm-0.32.0/responses-stream": Usage(15, 4, 0),
    "vllm-0.32.0/messages": Usage(24, 8, 0),
    "vllm-0.32.0/messages-stream": Usage(24, 4, 0),
    "sglang-0.5.23/responses": Usage(15, 6, 4),
    "sglang-0.5.23/messages": Usage(24, 8, 23),
    "sglang-0.5.23/messages-stream": Usage(24, 4, 23),
}


def usage_in_pieces(stream: bytes, size: int) -> Usage | None:
    reader = EventReader(keep_usage_back=False)
    passed = [reader.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    assert b"".join(passed) + reader.flush() == stream
    return reader.usage


@pytest.mark.parametrize("name", COUNTED)
def test_recorded_answers_of_other_apis_than_chat_are_counted(name: str) -> None:
    capture: Capture = ALL[name]
    if not capture.is_stream:
        assert usage_of(capture.answer_body) == COUNTED[name]
        return
    for size in (len(capture.answer_body), 997, 64):
        assert usage_in_pieces(capture.answer_body, size) == COUNTED[name]


@pytest.mark.parametrize(
    ("found", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2}, Usage(3, 2, 0)),
        ({"prompt_tokens": 3, "total_tokens": 3}, Usage(3, 0, 0)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}, Usage(3, 0, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": None}, Usage(3, 0, 0)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}, Usage(3, 0, 0)),
        ({"prompt_tokens": 3, "completion_tokens": "2"}, Usage(3, 0, 0)),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": -3}, None),
        ({"prompt_tokens": True}, None),
        ({"input_tokens": 3, "output_tokens": 2}, Usage(3, 2, 0)),
        ({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}, Usage(3, 0, 2)),
        ({"input_tokens": 3, "cache_read_input_tokens": 9, "output_tokens": 1}, Usage(12, 1, 9)),
        ({"input_tokens": 3, "cache_creation_input_tokens": 7}, Usage(10, 0, 0)),
        ({"output_tokens": 2}, None),
        ({}, None),
        (None, None),
        ([3], None),
        ("prompt_tokens", None),
    ],
)
def test_a_usage_is_read_for_what_it_says_and_no_more(found: Any, usage: Usage | None) -> None:
    assert usage_from(found, None) == usage


def test_a_count_of_the_answer_alone_is_put_to_that_of_the_prompt() -> None:
    assert usage_from({"output_tokens": 5}, Usage(24, 0, 23)) == Usage(24, 5, 23)
