"""A message read at once is the message read field by field, for the count and for the fingerprints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.message_texts import message_texts
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix
from gateway.text_size import text_size
from policies.lengths import TextSize

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a":1}'}}
PART = {"type": "text", "text": "hi"}
_CHARACTERS = TextSize._fields.index("messages")


def texts(*messages: Any) -> list[str | None] | None:
    return message_texts(Kind.CHAT, {"messages": list(messages)})


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "hi"}, "hi"),
        ({"content": ""}, ""),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": "42", "tool_call_id": "c1"}, "42"),
        ({"content": "hi", "name": "ada"}, "ada\nhi"),
        ({"content": "hi", "name": None, "tool_calls": [], "refusal": None}, "hi"),
        ({"content": [PART]}, "hi"),
        ({"content": [PART, {"type": "text", "text": ""}, PART]}, "hi\nhi"),
        ({"content": [{**PART, "cache_control": {"type": "ephemeral"}}]}, "hi"),
        ({"content": [PART], "tool_call_id": "c1"}, "hi"),
        ({"content": None, "tool_calls": [CALL, {**CALL, "index": 1}]}, 'look_up\n{"a":1}\nlook_up\n{"a":1}'),
        ({"content": "so", "tool_calls": [CALL]}, 'so\nlook_up\n{"a":1}'),
        ({"tool_calls": [{**CALL, "function": {"name": "now", "arguments": ""}}]}, "now"),
    ],
)
def test_texts_stand_on_a_line_each(message: dict[str, Any], text: str) -> None:
    assert texts({"role": "user", **message}) == [text]


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"content": [{"type": "input_audio", "text": "a"}]},
        {"content": [{**PART, "name": "n"}]},
        {"content": [{"type": "text", "text": 7}]},
        {"content": [{"type": "text"}]},
        {"content": ["hi"]},
        {"content": {"text": "hi"}},
        {"content": 7},
        {"content": "no", "refusal": "no"},
        {"content": "x", "type": "image_url"},
        {"content": "x", "name": 7},
        {"tool_calls": [{**CALL, "text": "t"}]},
        {"tool_calls": [{**CALL, "type": "file"}]},
        {"tool_calls": [{"function": CALL["function"]}]},
        {"tool_calls": [{**CALL, "function": {"name": "n", "arguments": {"a": 1}}}]},
        {"tool_calls": [{**CALL, "function": {"name": "n", "arguments": "{}", "output": "o"}}]},
        {"tool_calls": ["c"]},
        {"tool_calls": 7},
    ],
)
def test_other_messages_are_left_to_be_read_field_by_field(message: dict[str, Any]) -> None:
    plain = {"role": "user", "content": "plain"}
    assert texts({"role": "user", **message}) == [None]
    assert texts(plain, {"role": "user", **message}, plain) == ["plain", None, "plain"]


@pytest.mark.parametrize("messages", [None, [], "hi", {"content": "hi"}, ["hi"], [7], [[1, 2]], [{}, None]])
def test_what_is_no_list_of_messages_has_no_texts(messages: Any) -> None:
    assert message_texts(Kind.CHAT, {"messages": messages}) is None


@pytest.mark.parametrize("kind", [Kind.COMPLETION, Kind.JSON, Kind.FORM, Kind.OTHER])
def test_only_a_chat_has_texts(kind: Kind) -> None:
    assert message_texts(kind, {"messages": [{"role": "user", "content": "hi"}]}) is None


words = st.text("ab é水\n", max_size=300)
values = words | st.none() | st.integers(0, 2)
text_part = st.fixed_dictionaries({"type": st.just("text"), "text": words})
parts: st.SearchStrategy[list[Any]] = st.lists(
    text_part
    | words
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image_url", "refusal"])},
        optional={"text": values, "refusal": values, "cache_control": st.just({}), "image_url": values},
    ),
    max_size=3,
)
functions = st.fixed_dictionaries(
    {}, optional={"name": words, "arguments": words | st.just({"a": 1}), "output": values}
)
calls = st.lists(
    st.fixed_dictionaries(
        {"function": functions | values},
        optional={
            "id": words,
            "type": st.sampled_from(["function", "file"]),
            "index": values,
            "text": values,
        },
    )
    | st.fixed_dictionaries(
        {
            "id": st.just("c"),
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": words, "arguments": words}),
        }
    ),
    max_size=3,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
        optional={
            "content": words | parts | values,
            "name": values,
            "tool_calls": calls | values,
            "tool_call_id": words,
            "refusal": values,
            "type": values,
            "text": values,
        },
    )
    | st.fixed_dictionaries({"role": st.just("user"), "content": words | st.lists(text_part, max_size=3)}),
    min_size=1,
    max_size=6,
)


@given(messages)
def test_read_at_once_is_as_read_field_by_field(messages: list[dict[str, Any]]) -> None:
    fields = {"messages": messages}
    found = message_texts(Kind.CHAT, fields)
    assert found is not None
    size, walked = text_size(Kind.CHAT, fields, found), text_size(Kind.CHAT, fields, None)
    joined = sum(text.count("\n") for text in found if text is not None)
    assert -1e-6 < size.chars - walked.chars < joined + 1e-6
    assert size[_CHARACTERS:] == walked[_CHARACTERS:]
    if size.chars <= 2048:  # above, the lines between texts move the samples
        assert size._replace(lines=walked.lines) == walked
    assert prompt_prefix(Kind.CHAT, fields, "m", walked, found) == prompt_prefix(
        Kind.CHAT, fields, "m", walked, None
    )
