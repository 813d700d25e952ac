"""A body's prompt in the order in which an engine's cache sees it: what engines share is recognised, and nothing else is."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator import chat_template
from gateway.emulator.tokens import BLOCK_TOKENS, TOKEN_CHARACTERS, read_text
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix, session_of
from policies.prefix_chain import MIN_GAP_CHARS, Prefix

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "prompt_blocks.json").read_text("utf-8"))
BLOCK_CHARS = BLOCK_TOKENS * TOKEN_CHARACTERS
SYSTEM = "You answer for the desk of loans, and for nobody else. " * 8
LONG = "A question about loans that were taken out long ago. " * 8
TOOLS = [{"type": "function", "function": {"name": "rate", "description": "of a loan " * 30}}]
Message = dict[str, Any]


def message(content: Any, role: str = "user") -> Message:
    return {"role": role, "content": content}


def chat(*messages: Message, model: str = "m", **fields: Any) -> Prefix:
    found = prompt_prefix(Kind.CHAT, {"messages": list(messages), **fields}, model)
    assert found is not None
    return found


def common(one: Prefix, other: Prefix) -> int:
    """How many leading boundaries both have."""
    count = 0
    for a, b in zip(one.hashes, other.hashes, strict=False):
        if a != b:
            break
        count += 1
    return count


def depth(one: Prefix, other: Prefix) -> int:
    shared = common(one, other)
    return one.depths[shared - 1] if shared else 0


# --- the order of a chat ------------------------------------------------------------------------------------------------------


def test_a_shared_system_prompt_is_recognised_whole_wherever_it_stands() -> None:
    first = chat(message(SYSTEM, "system"), message("one"))
    assert depth(first, chat(message(SYSTEM, "system"), message("two " * 50))) >= len(SYSTEM)
    assert chat(message("one"), message(SYSTEM, "system")) != first


def test_tools_come_after_the_system_prompt_and_before_all_else() -> None:
    with_tools = chat(message(SYSTEM, "system"), message(LONG), tools=TOOLS)
    without = chat(message(SYSTEM, "system"), message(LONG))
    assert len(SYSTEM) <= depth(with_tools, without) < len(SYSTEM) + MIN_GAP_CHARS
    assert (
        depth(with_tools, chat(message(SYSTEM, "system"), message("other"), tools=TOOLS)) > len(SYSTEM) + 200
    )


def test_a_growing_conversation_keeps_all_that_was_said() -> None:
    turns = [message(SYSTEM, "system"), message(LONG), message(LONG[5:], "assistant"), message(LONG[9:])]
    whole = chat(*turns)
    for count in range(1, 4):
        part = chat(*turns[:count])
        assert whole.hashes[: len(part.hashes)] == part.hashes


@pytest.mark.parametrize("role", ["assistant", "tool", "developer"])
def test_another_role_is_another_prefix(role: str) -> None:
    assert common(chat(message(LONG)), chat(message(LONG, role))) == 0


def test_text_in_parts_is_the_text() -> None:
    parts = message([{"type": "text", "text": LONG}])
    assert chat(parts).hashes == chat(message(LONG)).hashes


@pytest.mark.parametrize(
    "fields",
    [{"cache_salt": "s"}, {"extra_key": "k"}, {"lora_path": "l"}, {"chat_template": "t"}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_keeps_caches_apart_keeps_prefixes_apart(fields: dict[str, str]) -> None:
    assert common(chat(message(LONG)), chat(message(LONG), **fields)) == 0
    assert chat(message(LONG), **fields) == chat(message(LONG), **fields)


def test_what_keeps_caches_apart_counts_by_its_name() -> None:
    names = ("cache_salt", "extra_key", "lora_path", "chat_template")
    found = [chat(message(LONG), **{name: "a"}) for name in names]
    assert len({one.hashes for one in found}) == len(names)
    # SGLang takes lists as well, one for each prompt of a body.
    assert [chat(message(LONG), **{name: ["a", "b"]}) for name in names] == found


def test_models_have_caches_of_their_own() -> None:
    assert common(chat(message(LONG)), chat(message(LONG), model="adapter")) == 0


@pytest.mark.parametrize(
    "part",
    [
        lambda data: {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}},
        lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        lambda data: {"type": "input_image", "image_url": "https://images.test/" + data},
    ],
)
@pytest.mark.parametrize("size", [20, 500_000])
def test_the_same_image_or_sound_is_the_same_prefix_and_another_is_another(part: Any, size: int) -> None:
    def seen(data: str) -> Prefix:
        return chat(message([part(data), {"type": "text", "text": LONG}]))

    assert seen("A" * size) == seen("A" * size)
    assert common(seen("A" * size), seen("B" * size)) == 0
    assert seen("A" * size).chars < 3_000


def test_a_mark_of_the_cache_on_an_image_does_not_make_it_another() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 2000}}
    marked = {**image, "cache_control": {"type": "ephemeral"}}
    assert chat(message([image, LONG])) == chat(message([marked, LONG]))


@pytest.mark.parametrize("change", ["at the end", "longer", "within"])
def test_a_large_image_is_told_apart_by_its_samples_and_its_length(change: str) -> None:
    data = "".join(f"{i:08x}" for i in range(60_000))
    other = {
        "at the end": data[:-1] + "x",
        "longer": data[:1000] + data,
        "within": data[:200_000] + "y" * 9_000 + data[209_000:],
    }[change]
    one, two = (chat(message([{"type": "image_url", "image_url": {"url": url}}])) for url in (data, other))
    assert one.chars == two.chars
    assert common(one, two) == 0


@pytest.mark.parametrize("messages", [2, 20, 300])
@pytest.mark.parametrize("times", [1, 40, 400])
def test_however_long_plain_texts_are_read_as_their_parts_are(messages: int, times: int) -> None:
    """Three ways through the code: short and plain, long and plain, in parts."""
    if messages * times > 6_000:
        return
    plain = [message(f"{i} {LONG}" * times, "assistant" if i % 2 else "user") for i in range(messages)]
    parts = [message([{"type": "text", "text": each["content"]}], each["role"]) for each in plain]
    one, other = chat(*plain), chat(*parts)
    assert (one.hashes, one.depths, one.sizes, one.chars) == (
        other.hashes,
        other.depths,
        other.sizes,
        other.chars,
    )
    assert one.chars == sum(len(each["role"]) + 1 + len(each["content"]) for each in plain)


def test_tools_that_only_a_lenient_decoder_reads_are_told_apart() -> None:
    def with_tool(default: Any) -> Prefix:
        return chat(message(SYSTEM, "system"), message(LONG), tools=[{"name": "rate", "default": default}])

    for one, other in (("\ud800", "\ud801"), (2**70, 2**70 + 1)):
        assert with_tool(one) == with_tool(one)
        assert depth(with_tool(one), with_tool(other)) < len(SYSTEM) + MIN_GAP_CHARS


def test_a_body_nested_deeply_raises_nothing() -> None:
    nested: Any = LONG
    for _ in range(2_000):
        nested = [{"content": nested}]
    found = chat(
        message(SYSTEM, "system"),
        message(nested),
        {"role": "assistant", "tool_calls": nested},
        {"role": "assistant", "arguments": nested},
        tools=nested,
        documents=nested,
    )
    assert common(found, chat(message(SYSTEM, "system"), message(LONG))) > 0


@pytest.mark.parametrize("ids", [[1.5], [1, "a"], [-1], [1, 2**40], [1, 10**30], [None], [True], [[]], [{}]])
def test_ids_that_are_none_count_as_nothing(ids: list[Any]) -> None:
    assert prompt_prefix(Kind.COMPLETION, {"prompt": ids * 200}, "m") is None


def test_many_token_ids_count_as_many_characters() -> None:
    one, other = (
        prompt_prefix(Kind.COMPLETION, {"prompt": list(range(count))}, "m") for count in (20_000, 90_000)
    )
    assert one is not None and other is not None
    assert (one.chars, other.chars) == (80_000, 360_000)
    assert one.hashes == other.hashes


def test_calls_and_their_results_are_part_of_the_prompt() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "rate", "arguments": LONG}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    one = chat(message(LONG), asked, {"role": "tool", "tool_call_id": "1", "content": LONG})
    other = chat(message(LONG), asked, {"role": "tool", "tool_call_id": "1", "content": "nothing"})
    assert depth(one, other) >= 1.5 * len(LONG)
    assert len(one.hashes) > common(one, other)


# --- other bodies -------------------------------------------------------------------------------------------------------------


def test_completions_by_text_by_token_ids_and_the_first_of_several() -> None:
    text = prompt_prefix(Kind.COMPLETION, {"prompt": LONG}, "m")
    assert text is not None and text == prompt_prefix(Kind.COMPLETION, {"prompt": [LONG, "other"]}, "m")
    ids = prompt_prefix(Kind.COMPLETION, {"prompt": list(range(400))}, "m")
    more = prompt_prefix(Kind.COMPLETION, {"prompt": [*range(400), 7, 8]}, "m")
    assert ids is not None and more is not None
    assert ids.chars == 1600 and common(ids, more) >= len(ids.hashes) - 1
    assert prompt_prefix(Kind.COMPLETION, {"prompt": [list(range(400)), [1]]}, "m") == ids


def test_responses_and_messages_have_their_system_prompt_first() -> None:
    for fields in (
        {"instructions": SYSTEM, "input": "one"},
        {"instructions": SYSTEM, "input": [message("one")]},
        {"system": SYSTEM, "messages": [message("one")], "max_tokens": 5},
    ):
        one = prompt_prefix(Kind.JSON, fields, "m")
        changed = {name: "two" if value == "one" else value for name, value in fields.items()}
        other = prompt_prefix(Kind.JSON, changed, "m")
        assert one is not None and other is not None
        assert depth(one, other) >= len(SYSTEM)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Kind.JSON, {"input": LONG}),
        (Kind.JSON, {"input": [LONG, LONG]}),
        (Kind.JSON, {"query": LONG, "documents": [LONG]}),
        (Kind.FORM, {"prompt": LONG}),
        (Kind.OTHER, {"messages": [message(LONG)]}),
        (Kind.CHAT, {"messages": [message("short")]}),
        (Kind.CHAT, {}),
    ],
)
def test_nothing_is_looked_for_where_nothing_is_cached(kind: Kind, fields: dict[str, Any]) -> None:
    found = prompt_prefix(kind, fields, "m")
    assert found is None or not found.hashes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["messages", "tools", "prompt", "input", "system", "instructions", "content", "role", "type", "image_url", "text",
     "tool_calls", "function", "arguments", "cache_salt", "stream", "documents", "url", "input_audio", "data"]
)  # fmt: skip
BODIES = st.recursive(
    JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=20
)


@given(st.sampled_from(Kind), st.dictionaries(NAMES, BODIES, max_size=6))
def test_no_shape_of_a_body_raises(kind: Kind, fields: dict[str, Any]) -> None:
    before = repr(fields)
    found = prompt_prefix(kind, fields, "m")
    assert repr(fields) == before
    assert found is None or len(found.hashes) == len(found.depths)


@pytest.mark.parametrize(
    ("fields", "session"),
    [
        ({"session_id": "a", "prompt_cache_key": "b"}, "a"),
        ({"prompt_cache_key": "b"}, "b"),
        ({"session_id": ""}, ""),
        ({"session_id": 7, "prompt_cache_key": "b"}, "b"),
        ({"session_id": "x" * 257}, ""),
        ({}, ""),
    ],
)
def test_a_body_names_its_session(fields: dict[str, Any], session: str) -> None:
    assert session_of(fields) == session


# --- against engines ----------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["loan ", "rate ", "client ", "of the bank "]), max_size=120).map("".join)
CHATS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), min_size=1, max_size=5)


@given(WORDS, CHATS, CHATS)
def test_no_more_is_recognised_than_the_engine_shares_and_nearly_all_of_it_is(
    system: str, one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    bodies = [
        [message(system, "system"), *(message(text, role) for role, text in messages)]
        for messages in (one, other)
    ]
    prompts = [read_text(chat_template.render(messages, [])) for messages in bodies]
    blocks = 0
    for a, b in zip(prompts[0].block_hashes, prompts[1].block_hashes, strict=False):
        if a != b:
            break
        blocks += 1
    engine = blocks * BLOCK_CHARS
    found = [prompt_prefix(Kind.CHAT, {"messages": messages}, "m") for messages in bodies]
    recognised = depth(found[0], found[1]) if found[0] and found[1] else 0
    # The engine's template writes marks around each role, and the gateway a line.
    marks = 16 * (max(len(one), len(other)) + 1)
    assert recognised <= engine + BLOCK_CHARS + marks
    assert recognised >= 0.8 * engine - max(MIN_GAP_CHARS, BLOCK_CHARS) - marks


def shared_blocks(one: dict[str, Any], other: dict[str, Any]) -> int:
    count = 0
    while (
        one["blocks"][8 * count :][:8] and one["blocks"][8 * count :][:8] == other["blocks"][8 * count :][:8]
    ):
        count += 1
    return count


def recorded_pairs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(combinations(RECORDED["prompts"], 2))


def test_the_chain_equals_the_engines_block_order_on_recorded_prompts() -> None:
    """What a real tokenizer's blocks share, in tokens, is what the chain says, within a fifth and two blocks."""
    pairs = recorded_pairs()
    assert len(pairs) == 78
    for one, other in pairs:
        blocks = shared_blocks(one, other)
        chains = [prompt_prefix(Kind.CHAT, {"messages": each["messages"]}, "m") for each in (one, other)]
        assert chains[0] is not None and chains[1] is not None
        boundaries = common(chains[0], chains[1])
        share = chains[0].sizes[boundaries - 1] / chains[0].size if boundaries else 0.0
        recognised, shared = share * one["tokens"], blocks * BLOCK_TOKENS
        assert recognised >= 0.8 * shared - 2 * BLOCK_TOKENS
        # Where Chinese follows English this tokenizer, which takes three tokens to a Chinese character, has fewer of its tokens before.
        most = 1.1 if chains[0].size < 1.2 * chains[0].chars else 2.8
        assert recognised <= most * shared + 2 * BLOCK_TOKENS


def test_of_recorded_prompts_the_deeper_chain_shares_more_of_the_engines_blocks() -> None:
    for one in RECORDED["prompts"]:
        chain = chat(*one["messages"])
        found = [
            (depth(chain, chat(*other["messages"])), shared_blocks(one, other))
            for other in RECORDED["prompts"]
            if other is not one
        ]
        by_depth = sorted(found)
        assert [blocks for _, blocks in by_depth] == sorted(blocks for _, blocks in found)
