"""Which prompt is read out of a body, in which order, and that no body makes the reading raise."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import prompt_prefix
from gateway.message_texts import MAX_ITEMS
from gateway.paths import Kind
from gateway.prompt_prefix import session_of
from policies.prefix_chain import Prefix, prefix_of, seed_of
from tests.gateway.prompt_stage import prefix_found

LONG = "All answers are given in one sentence, and in the language of the question. " * 8
QUESTION = "What does a transfer abroad cost, and how many days does it take? " * 4
IMAGE = "data:image/png;base64,iVBORw0KGgo"
SYSTEM = {"role": "system", "content": LONG}
USER = {"role": "user", "content": QUESTION}
TOOL = {"type": "function", "function": {"name": "balance", "description": LONG, "parameters": {}}}


def chat(*messages: Any, **more: Any) -> Prefix:
    prefix = prefix_found(Kind.CHAT, {"messages": list(messages), **more}, "m")
    assert prefix is not None
    return prefix


def other(fields: dict[str, Any]) -> Prefix:
    prefix = prefix_found(Kind.JSON, fields, "m")
    assert prefix is not None
    return prefix


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def shared(one: Prefix, two: Prefix) -> int:
    common = [
        depth
        for mine, theirs, depth in zip(one.hashes, two.hashes, one.depths, strict=False)
        if mine == theirs
    ]
    return common[-1] if common else 0


def test_a_chat_is_a_piece_per_message_with_its_role() -> None:
    assert chat(SYSTEM, USER) == prefix_of([f"system\n{LONG}", f"user\n{QUESTION}"], seed_of("m"))
    assert shared(chat(SYSTEM, USER), chat(SYSTEM, user("?"))) == len(f"system\n{LONG}")


def test_a_role_tells_prompts_apart_from_its_message_on() -> None:
    assert shared(chat(SYSTEM, USER), chat({**SYSTEM, "role": "developer"}, USER)) == 0
    assert shared(chat(SYSTEM, USER), chat(SYSTEM, {**USER, "role": "assistant"})) == len(f"system\n{LONG}")


@pytest.mark.parametrize(
    "extra", [{"name": ""}, {"tool_calls": None}, {"tool_calls": []}, {"reasoning_content": "hm"}]
)
def test_a_message_with_more_members_is_read_like_a_plain_one(extra: dict[str, Any]) -> None:
    assert chat(SYSTEM, {**USER, **extra}) == chat(SYSTEM, USER)


CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a":1}'}}


@pytest.mark.parametrize(
    ("message", "piece"),
    [
        ({"role": "tool", "tool_call_id": "c1", "content": "42"}, "tool\n42"),
        ({"role": "user", "name": "ada", "content": "hi"}, "user\nada\nhi"),
        ({"content": "hi", "refusal": "no", "role": "assistant"}, "assistant\nhi\nno"),
        (
            {"role": "assistant", "content": "so", "tool_calls": [CALL]},
            'assistant\nso\nlook_up\n{"a":1}',
        ),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 'assistant\nlook_up\n{"a":1}'),
        ({"type": "message", "content": "hi"}, "message\nhi"),
    ],
)
def test_all_texts_of_a_message_count_in_one_order(message: dict[str, Any], piece: str) -> None:
    assert chat(SYSTEM, message, USER) == prefix_of(
        [f"system\n{LONG}", piece, f"user\n{QUESTION}"], seed_of("m")
    )


def test_a_medium_in_a_messages_place_is_no_text_whatever_else_it_holds() -> None:
    medium = {"role": "user", "type": "file", "content": "x"}
    found = chat(SYSTEM, medium)
    assert found.chars == len(f"system\n{LONG}") + len("user\n") + 1024


def test_parts_of_text_are_read_as_their_text() -> None:
    assert chat(SYSTEM, user([{"type": "text", "text": QUESTION}])) == chat(SYSTEM, USER)
    assert chat(SYSTEM, user([QUESTION])) == chat(SYSTEM, USER)
    assert chat(SYSTEM, user([{"type": "refusal", "refusal": QUESTION}])) == chat(SYSTEM, USER)


def test_tools_stand_behind_the_system_prompt_and_before_the_rest() -> None:
    tools = "tools\n" + orjson.dumps([TOOL]).decode()
    assert chat(SYSTEM, USER, tools=[TOOL]) == prefix_of(
        [f"system\n{LONG}", tools, f"user\n{QUESTION}"], seed_of("m")
    )
    assert chat(USER, tools=[TOOL]) == prefix_of([tools, f"user\n{QUESTION}"], seed_of("m"))
    assert chat(SYSTEM, USER, tools=[TOOL], documents=[{"text": "d"}]) == prefix_of(
        [f"system\n{LONG}", tools, 'documents\n[{"text":"d"}]', f"user\n{QUESTION}"], seed_of("m")
    )


def test_calls_and_their_results_count() -> None:
    def after(name: str, arguments: Any, result: Any) -> Prefix:
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        return chat(
            SYSTEM,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": result},
            USER,
        )

    first = after("balance", '{"account": 1}', "12.50")
    assert first == after("balance", '{"account": 1}', [{"type": "text", "text": "12.50"}])
    for changed in (
        after("limit", '{"account": 1}', "12.50"),
        after("balance", '{"account": 2}', "12.50"),
        after("balance", {"account": 2}, "12.50"),
        after("balance", '{"account": 1}', "12.51"),
    ):
        assert shared(first, changed) == len(f"system\n{LONG}")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (
            {"type": "image_url", "image_url": {"url": IMAGE + "A"}},
            {"type": "image_url", "image_url": {"url": IMAGE + "B"}},
        ),
        (
            {"type": "image_url", "image_url": {"url": IMAGE}},
            {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
        ),
        (
            {"type": "input_image", "image_url": IMAGE + "A"},
            {"type": "input_image", "image_url": IMAGE + "B"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AA=="}},
            {"type": "input_audio", "input_audio": {"data": "AB=="}},
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "a"}},
            {"type": "image", "source": {"type": "url", "url": "b"}},
        ),
        ({"type": "video_url", "video_url": {"url": "a"}}, {"type": "video_url", "video_url": {"url": "b"}}),
    ],
)
def test_an_image_or_a_sound_is_known_by_its_content(one: dict[str, Any], two: dict[str, Any]) -> None:
    same, different = (chat(user([part, {"type": "text", "text": QUESTION}])) for part in (one, two))
    assert same == chat(user([dict(one), {"type": "text", "text": QUESTION}]))
    assert same.chars == different.chars == len("user\n") + 1024 + 1 + len(QUESTION)
    assert shared(same, different) == 0


def test_the_mark_that_a_client_sets_for_the_cache_does_not_make_another_image() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    assert chat(user([image, QUESTION])) == chat(
        user([{**image, "cache_control": {"type": "ephemeral"}}, QUESTION])
    )


@pytest.mark.parametrize(("one", "two"), [("\ud800", "\ud801"), (2**70, 2**70 + 1)])
def test_tools_that_only_a_lenient_decoder_reads_are_told_apart(one: Any, two: Any) -> None:
    first, second = (chat(SYSTEM, USER, tools=[{**TOOL, "default": each}]) for each in (one, two))
    assert first == chat(SYSTEM, USER, tools=[{**TOOL, "default": one}])
    assert first.chars == second.chars > len(LONG) * 2 + len(QUESTION)
    assert first.hashes[-1] != second.hashes[-1]


def test_a_large_image_is_read_in_samples_and_its_length() -> None:
    def with_data(data: str) -> Prefix:
        return chat(user([{"type": "image_url", "image_url": {"url": data}}]))

    assert shared(with_data("A" * 100_000), with_data("A" * 100_001)) == 0
    data = "".join(f"{i:08x}" for i in range(250_000))
    assert with_data(data) == with_data(str(data))
    for changed in (
        data + "0",
        "1" + data[1:],
        data[:-1] + "x",
        data[:1_000_000] + "y" * 40_000 + data[1_040_000:],
    ):
        assert shared(with_data(data), with_data(changed)) == 0


@pytest.mark.parametrize("field", ["cache_salt", "extra_key", "lora_path", "chat_template"])
def test_what_keeps_caches_apart_keeps_prefixes_apart(field: str) -> None:
    plain, salted = chat(SYSTEM, USER), chat(SYSTEM, USER, **{field: "a"})
    assert salted == chat(SYSTEM, USER, **{field: ["a"]})
    for one, two in ((plain, salted), (salted, chat(SYSTEM, USER, **{field: "b"}))):
        assert not set(one.hashes) & set(two.hashes)
    assert chat(SYSTEM, USER, **{field: None}) == chat(SYSTEM, USER, **{field: ""}) == plain


def test_another_model_is_another_prefix() -> None:
    fields = {"messages": [SYSTEM, USER]}
    one, two = prefix_found(Kind.CHAT, fields, "m"), prefix_found(Kind.CHAT, fields, "m:adapter")
    assert one is not None and two is not None
    assert not set(one.hashes) & set(two.hashes)
    assert chat(SYSTEM, USER, cache_salt="a").hashes != chat(SYSTEM, USER, extra_key="a").hashes


@pytest.mark.parametrize("messages", [2, 20, 700])
def test_a_chat_of_any_length_is_the_same_with_and_without_parts(messages: int) -> None:
    plain = [{"role": "user" if i % 2 else "assistant", "content": f"{i} {LONG}"} for i in range(messages)]
    parts = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in plain]
    assert chat(*plain) == chat(*parts)


def test_one_very_long_message_is_counted_whole() -> None:
    text = LONG * 1000
    assert chat(user(text), user(text)).chars == 2 * len(text)
    assert chat(user(text), user(text)) == chat(user([text]), user([text]))


def test_a_completion_is_its_text() -> None:
    def complete(prompt: Any) -> Prefix | None:
        return prefix_found(Kind.COMPLETION, {"prompt": prompt}, "m")

    assert complete(LONG) == complete([LONG, QUESTION]) == prefix_of([LONG], seed_of("m"))
    assert complete([]) is complete("") is complete([{"a": 1}]) is complete(None) is None


def test_token_ids_are_four_characters_each() -> None:
    def complete(prompt: Any) -> Prefix:
        prefix = prefix_found(Kind.COMPLETION, {"prompt": prompt}, "m")
        assert prefix is not None
        return prefix

    ids = [i * 37 % 150_000 for i in range(3000)]
    whole = complete(ids)
    assert whole.chars == 12_000
    assert whole == complete([ids, [1, 2]])
    assert shared(whole, complete(ids[:1000])) == shared(whole, complete(ids[:1000] + [7] * 500))
    assert 0.8 * 4000 < shared(whole, complete(ids[:1000])) <= 4000
    assert complete(ids * 100).chars == 1_200_000
    assert complete(ids * 100)[:2] == complete(ids * 7)[:2]


@pytest.mark.parametrize("ids", [[1.5] * 200, [1, "a"] * 200, [-1] * 200, [2**40] * 200, [None] * 200])
def test_ids_that_are_none_count_as_nothing(ids: list[Any]) -> None:
    assert prefix_found(Kind.COMPLETION, {"prompt": ids}, "m") is None


def test_responses_begin_with_their_instructions() -> None:
    first = other({"instructions": LONG, "input": QUESTION, "tools": [TOOL]})
    tools = "tools\n" + orjson.dumps([TOOL]).decode()
    assert first == prefix_of([f"system\n{LONG}", tools, f"user\n{QUESTION}"], seed_of("m"))
    assert first == other({"instructions": LONG, "input": [USER], "tools": [TOOL]})
    assert other({"input": [SYSTEM, USER], "tools": [TOOL]}) == first
    later = other({
        "instructions": LONG,
        "input": [
            USER,
            {"type": "function_call", "call_id": "1", "name": "balance", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "12.50"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": QUESTION}]},
        ],
        "tools": [TOOL],
    })  # fmt: skip
    assert shared(first, later) == first.depths[-1]
    assert later.chars == first.chars + len(
        "function_call\nbalance\n{}function_call_output\n12.50assistant\n" + QUESTION
    )


def test_a_response_that_goes_on_from_another_shares_its_instructions_alone() -> None:
    one, two = (
        other({"instructions": LONG, "previous_response_id": name, "input": QUESTION})
        for name in ("resp_1", "resp_2")
    )
    assert shared(one, two) == len(f"system\n{LONG}")
    assert other({"previous_response_id": "resp_1", "input": [USER]}).hashes


def test_messages_begin_with_their_system_prompt() -> None:
    plain = other({"system": LONG, "messages": [USER], "max_tokens": 10})
    assert plain == chat(SYSTEM, USER)
    assert plain == other({"system": [{"type": "text", "text": LONG}], "messages": [USER], "max_tokens": 10})

    def after(result: Any, argument: int = 1) -> Prefix:
        use = {"type": "tool_use", "id": "1", "name": "balance", "input": {"account": argument}}
        outcome = {"type": "tool_result", "tool_use_id": "1", "content": result}
        turns = [USER, {"role": "assistant", "content": [use]}, user([outcome])]
        return other({"system": LONG, "messages": turns, "max_tokens": 10})

    assert after("12.50 " * 100) == after([{"type": "text", "text": "12.50 " * 100}])
    assert shared(after("12.50 " * 100), after("13.50 " * 100)) == shared(
        after("12.50 " * 100, 2), after("12.50 " * 100)
    )


def test_engines_own_forms_are_read_too() -> None:
    assert other({"text": LONG, "sampling_params": {}}) == prefix_of([LONG], seed_of("m"))
    assert other({"input_ids": [[5] * 400], "sampling_params": {}}).chars == 1600
    assert other({"messages": [SYSTEM, USER], "stream": False}) == chat(SYSTEM, USER)
    assert other({"messages": [[SYSTEM, USER], [USER]], "max_tokens": 1}) == chat(SYSTEM, USER)
    assert other({"system": LONG, "prompt": QUESTION, "stream": True}).depths[-1] >= len(LONG)


@pytest.mark.parametrize(
    "fields",
    [
        {"input": LONG},
        {"input": [LONG, QUESTION], "encoding_format": "float"},
        {"input": [1] * 500},
        {"messages": [SYSTEM, USER]},
        {"query": LONG, "documents": [LONG]},
        {"prompt": LONG},
        {"text": LONG},
        {},
    ],
)
def test_embeddings_scores_and_token_counts_have_no_prefix(fields: dict[str, Any]) -> None:
    assert prefix_found(Kind.JSON, fields, "m") is None


def test_what_is_short_or_no_json_call_has_none() -> None:
    assert prefix_found(Kind.CHAT, {"messages": [user("hello")]}, "m") is None
    assert prefix_found(Kind.FORM, {"messages": [SYSTEM]}, "m") is None
    assert prefix_found(Kind.OTHER, {"messages": [SYSTEM]}, "m") is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.just(LONG)
    | st.just("\ud800" * 200),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "tool_calls",
                    "function",
                    "arguments",
                    "image_url",
                    "url",
                    "input",
                    "name",
                ]
            )
            | st.text(max_size=3),
            inner | st.sampled_from(["image_url", "tool_use", "system", "text", "input_audio"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "messages",
            "prompt",
            "input",
            "instructions",
            "system",
            "tools",
            "documents",
            "cache_salt",
            "extra_key",
            "text",
            "stream",
            "previous_response_id",
            "input_ids",
            "session_id",
            "prompt_cache_key",
        ]
    ),
    JSON,
    max_size=6,
)


@given(st.sampled_from(Kind), FIELDS)
def test_no_shape_raises(kind: Kind, fields: dict[str, Any]) -> None:
    before = repr(fields)
    prefix = prefix_found(kind, fields, "m")
    assert prefix is None or len(prefix.hashes) == len(prefix.depths) > 0
    assert len(session_of(fields)) <= 256
    assert repr(fields) == before


def test_a_body_nested_deeply_raises_nothing() -> None:
    nested: Any = LONG
    for _ in range(600):
        nested = [{"content": nested}]
    assert chat(SYSTEM, user(nested), {"role": "assistant", "tool_calls": nested}, tools=nested).hashes


def test_the_session_is_the_one_that_the_body_names() -> None:
    assert session_of({"session_id": "a", "prompt_cache_key": "b"}) == "a"
    assert session_of({"prompt_cache_key": "b"}) == "b"
    assert session_of({"session_id": "", "prompt_cache_key": "b"}) == "b"
    assert session_of({"session_id": 7}) == session_of({"session_id": "x" * 257}) == session_of({}) == ""
    assert session_of({"session_id": "x" * 256}) == "x" * 256


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.JSON])
def test_of_a_body_of_countless_items_so_many_steps_are_taken(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[Any] = []

    class Counted(prompt_prefix._Walk):
        __slots__ = ("steps",)

        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            walks.append(self)

        def _add_texts(self, value: Any, texts: list[str], nesting: int) -> None:
            self.steps += 1
            super()._add_texts(value, texts, nesting)

    monkeypatch.setattr(prompt_prefix, "_Walk", Counted)
    nested = {"type": "tool_result", "content": [{}, {}, {}]}
    shapes: list[list[dict[str, Any]]] = [
        [{}] * (3 * MAX_ITEMS),
        [user([{}] * (3 * MAX_ITEMS))],
        [user([nested] * MAX_ITEMS)] * 3,
    ]
    for messages in shapes:
        prefix_found(kind, {"messages": messages, "max_tokens": 1}, "m")
        assert MAX_ITEMS // 2 < walks.pop().steps <= MAX_ITEMS + 10
