"""What is counted in bodies of every kind, and that no body makes the count raise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import text_size
from gateway.message_texts import MAX_ITEMS
from gateway.paths import Kind
from gateway.text_size import request_text
from policies.lengths import TextSize
from tests.gateway.prompt_stage import prefix_found, size_found

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "policies" / "recorded_tokens.json").read_text(encoding="utf-8")
)
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


def chat(*messages: Any, **more: Any) -> TextSize:
    return size_found(Kind.CHAT, {"model": "m", "messages": list(messages), **more})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def letters(size: TextSize) -> int:
    return round(size.letters)


@pytest.mark.parametrize("recorded", RECORDED["texts"], ids=lambda each: each["kind"])
def test_counts_are_those_that_the_estimate_was_measured_with(recorded: dict[str, Any]) -> None:
    assert list(TextSize._fields) == RECORDED["size"]
    assert list(chat(SYSTEM, user(recorded["text"]))) == recorded["size"]


def test_every_sort_of_character_is_counted_once() -> None:
    size = chat(user("Ab 12.\n信用卡é!"))
    assert size == TextSize(wide=3, accented=1, letters=2, digits=2, marks=2, spaces=1, lines=1, messages=1)


def test_an_emoji_counts_as_two_wide_characters() -> None:
    assert chat(user("😀")).wide == 2
    assert chat(user("😀")).accented == 0


@given(st.text(max_size=300))
def test_no_character_is_lost(text: str) -> None:
    size = chat(user(text))
    four_bytes = sum(1 for character in text if ord(character) > 0xFFFF)
    counted = size.wide + size.accented + size.letters + size.digits + size.marks + size.spaces + size.lines
    assert 0 <= counted - len(text) <= four_bytes
    assert size.letters == sum(character.isascii() and character.isalpha() for character in text)


@pytest.mark.parametrize("unit", ["word 12, ", "请查询账户余额。", "mixed 混合文本 3\n"])
def test_a_long_text_is_counted_from_pieces_of_it(unit: str) -> None:
    times = 60_000
    exact = chat(user(unit))
    size = chat(user(unit * times))
    for counted, once in zip(size[:7], exact[:7], strict=True):
        assert counted == pytest.approx(times * once, rel=0.1)


def test_every_stretch_of_a_long_text_has_its_share() -> None:
    size = chat(user("a" * 30_000 + "水" * 6000 + "1" * 12_000))
    assert (size.letters, size.wide, size.digits) == (30_000, 6000, 12_000)


def test_one_part_of_text_counts_like_its_text() -> None:
    texts = ["Be brief.", "请查询 3,000 余额", ""]
    plain = [user(text) for text in texts]
    parts = [user([{"type": "text", "text": text}]) for text in texts]
    mixed = [plain[0], *parts[1:]]
    expected = size_found(Kind.CHAT, {"messages": plain})
    assert expected.messages == 3
    assert (
        size_found(Kind.CHAT, {"messages": parts}) == size_found(Kind.CHAT, {"messages": mixed}) == expected
    )


@pytest.mark.parametrize(
    ("part", "found", "images"),
    [
        ({"type": "text", "text": None}, 0, 0),
        ({"type": "text"}, 0, 0),
        ({"type": "image_url", "text": "a"}, 1, 1),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, 1, 0),
        ("a", 1, 0),
        (7, 0, 0),
        (None, 0, 0),
    ],
)
def test_a_part_of_another_kind_is_not_taken_for_text(part: Any, found: int, images: int) -> None:
    size = chat(user("abc"), user([part]))
    assert (size.messages, letters(size), size.images) == (2, 3 + found, images)


def test_parts_are_counted_by_their_type() -> None:
    size = chat(
        user(
            [
                {"type": "text", "text": "hello"},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64," + "A" * 9000, "detail": "low"},
                },
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": "A" * 4000, "format": "wav"}},
                {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
            ]
        )
    )
    assert size == TextSize(letters=5, messages=1, images=1 + 8, small_images=1, audio_bytes=3000)


def test_a_sound_to_be_fetched_counts_as_some_seconds() -> None:
    assert (
        chat(user([{"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}])).audio_bytes > 0
    )


def test_tool_definitions_count_as_the_json_they_are() -> None:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "城市": 1}}}]
    size = chat(user("hi"), tools=tools)
    as_text = chat(user("hi" + orjson.dumps(tools).decode()))
    assert size == as_text._replace(tools=1)


def test_calls_and_their_results_are_part_of_the_prompt() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"city":"Bern"}'}}
    size = chat(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    )
    assert (size.messages, letters(size)) == (2, len("find" + "cityBern" + "rain"))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("four", TextSize(letters=4)),
        (["four", "five"], TextSize(letters=8)),
        ([1, 2, 3], TextSize(token_ids=3)),
        ([[1, 2, 3], [4]], TextSize(token_ids=4)),
    ],
)
def test_completions_and_embeddings_take_text_or_token_ids(prompt: Any, expected: TextSize) -> None:
    assert size_found(Kind.COMPLETION, {"model": "m", "prompt": prompt}) == expected
    assert size_found(Kind.JSON, {"model": "m", "input": prompt}) == expected


def test_rerank_counts_the_query_and_the_documents() -> None:
    fields = {"query": "abc", "documents": ["de", {"text": "fgh"}]}
    assert letters(size_found(Kind.JSON, fields)) == 8


def test_responses_are_counted_with_their_instructions() -> None:
    fields = {
        "instructions": "abc",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "defg"}, {"type": "input_image", "detail": "low"}]},
            {"type": "function_call", "name": "find", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"},
        ],
    }  # fmt: skip
    size = size_found(Kind.JSON, fields)
    assert (letters(size), size.small_images) == (3 + 4 + 4 + 4, 1)


def test_anthropic_messages_are_counted_with_their_system_prompt() -> None:
    fields = {
        "system": [{"type": "text", "text": "abc"}],
        "messages": [
            user(
                [
                    {"type": "text", "text": "de"},
                    {"type": "image", "source": {"type": "base64", "data": "A" * 99}},
                ]
            ),
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "find", "input": {"x": 1}}],
            },
            user([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "fg"}]}]),
        ],
    }
    size = size_found(Kind.JSON, fields)
    assert (letters(size), size.images, size.messages) == (3 + 2 + 4 + 1 + 2, 1, 3)


@pytest.mark.parametrize("kind", [Kind.FORM, Kind.OTHER])
def test_what_is_not_looked_into_counts_as_nothing(kind: Kind) -> None:
    assert size_found(kind, {"messages": [user("hello")]}) == TextSize()


def test_a_field_that_the_kind_does_not_use_is_not_counted() -> None:
    assert chat(user("hello"), prompt="x" * 100, input="y" * 100) == chat(user("hello"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "role", "name", "image_url", "input_audio", "tool_calls", "function", "input", "data", "detail"]
            ),
            inner | st.sampled_from(["text", "image_url", "input_audio", "tool_use", "video_url", "user", "system"]),
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip
bodies = st.dictionaries(
    st.sampled_from(["messages", "prompt", "input", "system", "instructions", "tools", "query", "documents", "suffix"]),
    values,
)  # fmt: skip


@given(kind=st.sampled_from(Kind), fields=bodies, limit=st.integers(1, 50))
def test_no_body_makes_it_raise(kind: Kind, fields: dict[str, Any], limit: int) -> None:
    assert all(count >= 0 for count in size_found(kind, fields))
    system, latest = request_text(fields, limit)
    assert len(system) <= limit
    assert len(latest) <= limit


def test_nesting_without_end_is_left_alone() -> None:
    nested: Any = "text"
    for _ in range(5000):
        nested = [nested]
    assert chat(user(nested), tools=nested).messages == 1
    assert request_text({"messages": [user(nested)]}) == ("", "")


def test_text_for_rules_is_the_system_prompt_and_the_latest_question() -> None:
    fields = {"messages": [SYSTEM, user("first"), {"role": "assistant", "content": "answer"}, user("second")]}
    assert request_text(fields) == ("You are a helpful assistant.", "second")


def test_text_parts_are_joined_by_lines() -> None:
    parts = [
        {"type": "text", "text": "one"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "two"},
    ]
    assert request_text({"messages": [user(parts)]}) == ("", "one\ntwo")


def test_a_turn_without_text_passes_on_to_the_one_before() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    tool = {"role": "tool", "content": "rain"}
    assert request_text({"messages": [user("question"), user(picture), tool]}) == ("", "question")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt": "once upon"}, ("", "once upon")),
        ({"prompt": ["once", "upon"]}, ("", "upon")),
        ({"prompt": [1, 2, 3]}, ("", "")),
        ({"input": "embed this"}, ("", "embed this")),
        ({"instructions": "be brief", "input": "question"}, ("be brief", "question")),
        (
            {"instructions": "be brief", "input": [user([{"type": "input_text", "text": "question"}])]},
            ("be brief", "question"),
        ),
        ({"system": [{"type": "text", "text": "be kind"}], "messages": [user("hi")]}, ("be kind", "hi")),
        ({"messages": [{"role": "developer", "content": "rules"}, user("hi")]}, ("rules", "hi")),
        ({"query": "which one", "documents": ["a", "b"]}, ("", "which one")),
        ({}, ("", "")),
    ],
)
def test_other_apis_have_their_text_in_other_fields(
    fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert request_text(fields) == expected


def test_of_a_long_question_both_ends_are_kept_and_of_a_system_prompt_the_beginning() -> None:
    fields = {"messages": [{"role": "system", "content": "s" * 99 + "x"}, user("begin" + "m" * 500 + "end")]}
    system, latest = request_text(fields, limit_chars=21)
    assert system == "s" * 21
    assert latest == "beginmmmmm\nmmmmmmmend"


def test_the_end_of_many_parts_is_kept() -> None:
    parts = [{"type": "text", "text": f"part {number}"} for number in range(1000)]
    assert request_text({"messages": [user(parts)]}, limit_chars=40)[1].endswith("part 999")


@pytest.mark.parametrize("shape", ["messages", "parts", "inner"])
def test_of_a_body_of_countless_items_so_many_are_looked_into(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    count, add_item = 4 * MAX_ITEMS, text_size._Found.add_item

    def counted(self: Any, item: dict[str, Any], depth: int) -> None:
        nonlocal looked
        looked += 1
        add_item(self, item, depth)

    monkeypatch.setattr(text_size._Found, "add_item", counted)
    items: list[Any] = [{} for _ in range(count)]
    if shape == "parts":
        items = [user(items)]
    elif shape == "inner":
        items = [user([{"type": "tool_result", "content": [{}, {}, {}]} for _ in range(count // 4)])]
    fields = {"messages": items}
    for kind in (Kind.CHAT, Kind.JSON):
        looked = 0
        size = size_found(kind, fields)
        assert MAX_ITEMS // 2 < looked <= MAX_ITEMS + 1
        assert size.messages == len(items)
        prefix_found(kind, {**fields, "max_tokens": 1}, "m")
