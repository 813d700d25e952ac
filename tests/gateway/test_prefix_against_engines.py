"""What the fingerprints of two prompts have in common against what engines find in common in their tokens.

The engines: the emulated one, on chats that hypothesis draws; and three tokenizers with their chat templates, whose token ids were recorded for
chats in three families (`tests/fixtures/prompt_tokens.json` says how). A block has 16 tokens, and is shared where all tokens up to its end are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.chat_template import render
from gateway.emulator.tokens import BLOCK_TOKENS, read_text, split
from gateway.paths import Kind
from policies.prefix_chain import MAX_DEPTH_CHARS, MIN_GAP_CHARS
from tests.gateway.prompt_stage import prefix_found

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "prompt_tokens.json").read_text(encoding="utf-8")
)
PROMPTS: list[dict[str, Any]] = RECORDED["prompts"]
PAIRS = list(itertools.combinations(PROMPTS, 2))
ENGINES = list(RECORDED["engines"])
Messages = list[dict[str, str]]


def leading_equals(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in itertools.takewhile(bool, map(int.__eq__, one, other)))


def recognised(one: Messages, other: Messages, tools: list[Any] | None = None) -> int:
    prefixes = [prefix_found(Kind.CHAT, {"messages": each, "tools": tools}, "m") for each in (one, other)]
    if prefixes[0] is None or prefixes[1] is None:
        return 0
    shared = leading_equals(prefixes[0].hashes, prefixes[1].hashes)
    return prefixes[0].depths[shared - 1] if shared else 0


def in_content(messages: Messages, depth: int) -> tuple[int, int]:
    """The message in whose piece a depth stands or ends, and how many characters of its content lie before it."""
    for index, message in enumerate(messages):
        chars = len(message["role"]) + 1 + len(message["content"])
        if depth <= chars or index == len(messages) - 1:
            return index, max(depth - len(message["role"]) - 1, 0)
        depth -= chars
    raise AssertionError


def depth_of(messages: Messages, index: int, content_chars: int) -> int:
    pieces = [len(message["role"]) + 1 + len(message["content"]) for message in messages[:index]]
    return sum(pieces) + len(messages[index]["role"]) + 1 + content_chars


def depth_at(messages: Messages, starts: list[int], position: int) -> int:
    """The depth that the fingerprints have where the template's text has `position`; `starts` are those of the contents in it."""
    index = max((i for i, start in enumerate(starts) if start <= position), default=0)
    return depth_of(messages, index, max(0, min(position - starts[index], len(messages[index]["content"]))))


LINES = st.sampled_from([
    "Reads the balance of an account and says since when it has been so. ",
    "年费在开卡后的第二个月收取，首年免除。",
    "def drain(queue):\n    return [queue.popleft() for _ in range(len(queue))]\n",
    "Naïve café: 12.50 € / 3 = 4.1666…\n",
])  # fmt: skip
CONTENTS = st.builds(
    lambda lines, times: "".join(lines) * times, st.lists(LINES, min_size=1, max_size=5), st.integers(1, 25)
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        CONTENTS,
    ),
    max_size=6,
)


@st.composite
def pairs_of_chats(draw: st.DrawFn) -> tuple[Messages, Messages, list[Any]]:
    """Two chats that begin alike and depart at the end of a message or inside one."""
    beginning = [{"role": "system", "content": draw(CONTENTS)}, *draw(MESSAGES)]
    cut = draw(st.integers(0, len(beginning[-1]["content"])))
    departed = [
        *beginning[:-1],
        {**beginning[-1], "content": beginning[-1]["content"][:cut] + draw(CONTENTS)},
    ]
    other = draw(st.sampled_from([beginning, departed, beginning[:-1]]))
    tools = draw(
        st.sampled_from([[], [{"type": "function", "function": {"name": "balance", "parameters": {}}}]])
    )
    return beginning + draw(MESSAGES), other + draw(MESSAGES), tools


@given(pairs_of_chats())
def test_what_is_recognised_is_what_the_emulated_engine_shares(
    chats: tuple[Messages, Messages, list[Any]],
) -> None:
    one, other, tools = chats
    if not one or not other:
        return
    rendered = [render(list(each), tools) for each in (one, other)]
    shared_blocks = leading_equals(*(read_text(text).block_hashes for text in rendered))
    tokens = split(rendered[0])
    starts, position = [], len(render([], tools)) - len("<|assistant|>\n")
    for message in one:
        position += len(f"<|{message['role']}|>\n")
        starts.append(position)
        position += len(message["content"]) + 1
    tools_chars = len("tools\n" + json.dumps(tools, separators=(",", ":"))) if tools else 0

    def depth_after(blocks: int) -> int:
        characters = sum(map(len, tokens[: blocks * BLOCK_TOKENS]))
        return depth_at(one, starts, characters)

    depth = recognised(one, other, tools)
    in_messages = depth if depth <= len(f"system\n{one[0]['content']}") else depth - tools_chars
    assert in_messages <= depth_after(shared_blocks + 1)
    shared = min(depth_after(shared_blocks) + tools_chars, MAX_DEPTH_CHARS)
    assert depth > shared - max(MIN_GAP_CHARS, shared / 5) - tools_chars


def shared_blocks(one: dict[str, Any], other: dict[str, Any], engine: str) -> int:
    ids = (each["engines"][engine]["token_ids"] for each in (one, other))
    return leading_equals(*ids) // BLOCK_TOKENS


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_recognised_is_what_recorded_tokens_share(engine: str) -> None:
    recognised_at_all = 0
    for one, other in PAIRS:
        blocks = shared_blocks(one, other, engine)
        starts, ends = (one["engines"][engine][name] for name in ("starts", "block_ends"))
        depth = recognised(one["messages"], other["messages"])
        index, content_chars = in_content(one["messages"], depth)
        assert depth == 0 or starts[index] + content_chars <= [*ends, ends[-1] + 1000][blocks]
        shared = depth_at(one["messages"], starts, ends[blocks - 1]) if blocks else 0
        assert depth > shared - max(MIN_GAP_CHARS, shared / 5)
        recognised_at_all += depth > 0
    assert recognised_at_all >= 25


@pytest.mark.parametrize("engine", ENGINES)
def test_the_hash_chain_has_the_order_of_the_engines_blocks(engine: str) -> None:
    """Whichever of two prompts a third has more in common with, by its fingerprints: it has no fewer blocks in common with that one."""
    decided = 0
    for prompt in PROMPTS:
        others = [each for each in PROMPTS if each is not prompt]
        both = [
            (recognised(prompt["messages"], each["messages"]), shared_blocks(prompt, each, engine))
            for each in others
        ]
        for (depth, blocks), (other_depth, other_blocks) in itertools.permutations(both, 2):
            if depth > other_depth:
                assert blocks >= other_blocks
                decided += 1
    assert decided > 500


def test_recordings_are_of_the_families_they_are_meant_for() -> None:
    assert sorted({each["family"] for each in PROMPTS}) == ["conversation", "document", "system"]
    assert len(PROMPTS) == 15
    for each in PROMPTS:
        for engine in ENGINES:
            recording = each["engines"][engine]
            assert len(recording["block_ends"]) == len(recording["token_ids"]) // BLOCK_TOKENS
            assert len(recording["starts"]) == len(each["messages"])


@pytest.mark.parametrize("engine", ["qwen", "deepseek"])
def test_a_boundarys_share_of_the_bytes_is_its_share_of_the_tokens(engine: str) -> None:
    """In characters it would be off by a factor of three where languages mix."""
    for prompt in PROMPTS:
        found = prefix_found(Kind.CHAT, {"messages": prompt["messages"]}, "m")
        assert found is not None
        tokens, starts, ends = (
            prompt["engines"][engine][one] for one in ("token_ids", "starts", "block_ends")
        )
        for blocks, end in enumerate(ends, 1):
            if blocks % 4 == 0 and blocks * BLOCK_TOKENS > 64:
                depth = depth_at(prompt["messages"], starts, end)
                nearest = min(range(len(found.depths)), key=lambda index: abs(found.depths[index] - depth))
                share = found.sizes[nearest] / found.size * depth / found.depths[nearest]
                assert 0.75 < share / (blocks * BLOCK_TOKENS / len(tokens)) < 1.25
