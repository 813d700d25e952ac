"""Where a prompt's prefixes get their names, and that equal names mean equal text."""

from __future__ import annotations

import random
from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.prefix_chain import MAX_DEPTH_CHARS, MIN_GAP_CHARS, Prefix, prefix_of, seed_of

MOST_BOUNDARIES = 35
TEXTS = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda unit, chars: (unit * chars)[:chars], st.text(min_size=1, max_size=30), st.integers(0, 3000)
    ),
    st.builds(lambda seed, chars: words(chars, seed), st.integers(0, 5), st.integers(0, 3000)),
)
PROMPTS = st.lists(TEXTS, max_size=8)
SIZES = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 700), st.integers(0, 30_000)), max_size=60)


def words(chars: int, seed: int = 0) -> str:
    drawn = random.Random(seed)
    text = ""
    while len(text) < chars:
        text += drawn.choice(("account ", "interest ", "the ", "balance, ", "3.5 ", "limit\n"))
    return text[:chars]


def rule(pieces: list[str]) -> tuple[int, ...]:
    """The boundaries of the module's first paragraphs, looked for at one depth after the other."""
    found: list[int] = []
    depth = 0
    for piece in pieces:
        for at in range(depth + 1, min(depth + len(piece), MAX_DEPTH_CHARS) + 1):
            gap = at - (found[-1] if found else 0)
            is_end = at == depth + len(piece)
            if (
                gap >= max(256, at / 5)
                or (is_end and gap >= max(256, at / 6))
                or (is_end and len(piece) >= max(256, at / 3))
            ):
                found.append(at)
        depth += len(piece)
    return tuple(found)


def recognised(one: Prefix, other: Prefix) -> int:
    """The deepest boundary that both have; all before it have to be common too."""
    common = 0
    for mine, theirs in zip(one.hashes, other.hashes, strict=False):
        if mine != theirs:
            break
        common += 1
    assert not set(one.hashes[common:]) & set(other.hashes[common:])
    assert one.depths[:common] == other.depths[:common]
    return one.depths[common - 1] if common else 0


def shared_chars(one: list[str], other: list[str]) -> int:
    """Up to where both have the same characters and the same ends of pieces."""
    marked = ("\x1e".join(piece.replace("\x1e", "\x1f") for piece in each) for each in (one, other))
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(*marked, strict=False))
    return sum(1 for mine, _ in shared if mine != "\x1e")


def cut(pieces: list[str], chars: int) -> list[str]:
    beginning = []
    for piece in pieces:
        beginning.append(piece[:chars])
        chars -= len(piece)
        if chars <= 0:
            break
    return beginning


@settings(max_examples=20)
@given(PROMPTS)
def test_boundaries_stand_where_the_rule_says(pieces: list[str]) -> None:
    prefix = prefix_of(pieces, 0)
    assert prefix.depths == rule(pieces)
    assert len(prefix.hashes) == len(prefix.depths)
    assert prefix.chars == sum(map(len, pieces))


@pytest.mark.parametrize("first", [100, 101, 1400, 2000, 2001, 2002, 2003, 2004])
@pytest.mark.parametrize("second", [99, 100, 256, 270, 399, 400, 401, 402])
def test_boundaries_stand_where_the_rule_says_also_just_at_its_bounds(first: int, second: int) -> None:
    for sizes in ([first, second, 300], [first, 100, 100, second, 100]):
        pieces = ["x" * size for size in sizes]
        assert prefix_of(pieces, 0).depths == rule(pieces)


@given(PROMPTS, PROMPTS)
def test_what_follows_changes_no_earlier_boundary(pieces: list[str], more: list[str]) -> None:
    before, after = prefix_of(pieces, 7), prefix_of(pieces + more, 7)
    assert after.hashes[: len(before.hashes)] == before.hashes
    assert after.depths[: len(before.depths)] == before.depths


@given(PROMPTS, st.integers(0, 24_000), TEXTS, PROMPTS)
def test_a_prompt_that_departs_anywhere_is_recognised_to_within_a_fifth(
    pieces: list[str], chars: int, other_end: str, more: list[str]
) -> None:
    beginning = cut(pieces, chars)
    if beginning:
        beginning[-1] += other_end
    shared = shared_chars(pieces, beginning + more)
    depth = recognised(prefix_of(pieces, 7), prefix_of(beginning + more, 7))
    assert shared - max(MIN_GAP_CHARS, shared / 5) < depth <= shared or depth == shared == 0


@given(PROMPTS, PROMPTS)
def test_equal_hashes_mean_equal_text(one: list[str], other: list[str]) -> None:
    assert recognised(prefix_of(one, 7), prefix_of(other, 7)) <= shared_chars(one, other)


@given(PROMPTS, st.text(max_size=20), st.text(max_size=20))
def test_prompts_of_different_seeds_have_nothing_in_common(pieces: list[str], one: str, other: str) -> None:
    seeds = seed_of(one), seed_of(other)
    common = set(prefix_of(pieces, seeds[0]).hashes) & set(prefix_of(pieces, seeds[1]).hashes)
    assert one == other or not common


@given(SIZES)
def test_there_are_few_boundaries_and_none_is_deep(sizes: list[int]) -> None:
    prefix = prefix_of(["x" * size for size in sizes], 0)
    assert len(prefix.hashes) <= MOST_BOUNDARIES
    assert all(earlier < later for earlier, later in pairwise(prefix.depths))
    assert max(prefix.depths, default=0) <= MAX_DEPTH_CHARS


WORST_ENDS = (
    257, 514, 771, 1157, 1810, 2830, 4424, 6914, 10805, 16885, 26385, 41229, 64423, 90_000,
)  # fmt: skip
"""Each message a third of all before it and more, and ending right behind a place: found by search over all depths."""


def test_the_worst_conversation_reaches_the_bound() -> None:
    sizes = [end - before for before, end in zip((0, *WORST_ENDS), WORST_ENDS, strict=False)]
    assert len(prefix_of(["x" * size for size in sizes], 0).hashes) == MOST_BOUNDARIES


@pytest.mark.parametrize("message_chars", [20, 150, 400, 1500, 6000, 70_000])
def test_conversations_of_even_messages_have_twenty_odd(message_chars: int) -> None:
    prefix = prefix_of(
        [words(500), *(words(message_chars, seed) for seed in range(66_000 // message_chars + 1))], 0
    )
    assert 22 <= len(prefix.hashes) <= 30
    assert prefix.depths[-1] > 0.8 * MAX_DEPTH_CHARS


def test_nothing_is_hashed_below_the_greatest_depth() -> None:
    head = words(MAX_DEPTH_CHARS - 1000)
    one = prefix_of(["rule", head, words(500_000, 1)], 0)
    assert one.chars == 4 + len(head) + 500_000
    assert one[:2] == prefix_of(["rule", head, words(500_000, 2)[:300_000]], 0)[:2]
    assert MAX_DEPTH_CHARS * 0.8 < one.depths[-1] <= MAX_DEPTH_CHARS


@pytest.mark.parametrize("chars", [256, 300, 641, 5000, 65_536])
def test_a_system_prompt_ends_in_a_boundary(chars: int) -> None:
    system = words(chars)
    one, other = (prefix_of([system, question * 400], 0) for question in ("why? ", "when? "))
    assert recognised(one, other) == chars


def test_a_document_behind_a_short_instruction_ends_in_a_boundary_and_is_recognised_inside() -> None:
    document = words(4000)
    short = prefix_of(["be brief", document, words(300, 1)], 0)
    assert recognised(short, prefix_of(["be brief", document, words(300, 2)], 0)) == 4008
    asked = prefix_of(["be brief", document + "\n\n" + words(300, 1)], 0)
    assert 0.8 * 4008 < recognised(asked, prefix_of(["be brief", document + "\n\nwhat is it?"], 0)) <= 4010


def test_every_turn_of_a_conversation_recognises_the_one_before() -> None:
    turns = [words(600), *(words(500 + 150 * turn, turn) for turn in range(12))]
    prompts = [prefix_of(turns[:count], 0) for count in range(2, 14, 2)]
    for earlier, later in pairwise(prompts):
        assert recognised(earlier, later) == earlier.depths[-1] > 0.8 * earlier.chars


def test_messages_that_are_a_third_of_the_prompt_end_in_boundaries() -> None:
    turns = [words(chars, chars) for chars in (600, 500, 600, 900, 1350)]
    for count in range(1, 6):
        prefix = prefix_of(turns[:count], 0)
        assert prefix.depths[-1] == prefix.chars


def test_small_messages_far_down_have_boundaries_at_ends_only() -> None:
    sizes = [3000, *[90] * 300]
    ends = {sum(sizes[:count]) for count in range(1, len(sizes) + 1)}
    assert all(
        depth in ends for depth in prefix_of(["x" * size for size in sizes], 0).depths if depth >= 3000
    )


def test_the_end_of_a_message_tells_prompts_apart_only_behind_it() -> None:
    text = words(600)
    ended, went_on = prefix_of([text[:256], text[256:]], 0), prefix_of([text], 0)
    assert recognised(ended, went_on) == 256
    assert not set(ended.hashes[1:]) & set(went_on.hashes[1:])


@pytest.mark.parametrize("mark", ["\x1e", "\x1f", "\n", "\x00"])
def test_a_text_cannot_pretend_to_be_two_messages(mark: str) -> None:
    head, question, answer = words(640), "x" * 100, "y" * 156
    one, two = prefix_of([head, question + mark + answer], 0), prefix_of([head, question, answer], 0)
    assert (one.depths[-2:], two.depths[-2:]) == ((640, 896), (640, 896))
    assert recognised(one, two) == 640


def test_a_text_with_a_mark_at_the_place_of_an_end_has_no_hash_of_two_messages() -> None:
    head, question, answer = words(2000), "x" * 100, "y" * 349
    one, two = prefix_of([head, f"{question}\x1e{answer}"], 0), prefix_of([head, question, answer], 0)
    assert (one.depths[-1], two.depths[-1]) == (2450, 2449)
    assert recognised(one, two) == 2000


def test_a_beginning_in_english_has_one_name_whatever_language_follows() -> None:
    head = words(1000)
    english, chinese = prefix_of([head, words(500)], 3), prefix_of([head, "请查询余额" * 100], 3)
    assert recognised(english, chinese) == 1000


def test_depths_are_characters_in_every_script() -> None:
    for unit in ("a", "é", "水", "😀", "\ud800"):
        assert prefix_of([unit * 1000], 0).depths == prefix_of(["a" * 1000], 0).depths


def test_names_are_the_same_on_every_machine() -> None:
    assert seed_of("m", "", "k") == 7_917_269_574_977_897_943
    assert prefix_of(
        ["system\n" + "Be brief. " * 40, "user\n" + "请查询😀\ud800" * 40], seed_of("m")
    ) == Prefix(
        hashes=(
            5_085_039_956_640_052_307,
            15_181_056_255_250_072_443,
        ),
        depths=(256, 407),
        chars=612,
        sizes=(256, 407),
        size=1052,
    )


@given(
    st.lists(
        st.sampled_from(["a", "é", "水", "😀", "\ud800", "\x1e"]).map(lambda unit: unit * 70), max_size=30
    )
)
def test_sizes_are_the_depths_in_bytes(pieces: list[str]) -> None:
    found = prefix_of(pieces, 1)
    text = "".join(pieces)
    assert len(found.sizes) == len(found.depths)
    for depth, size in zip(found.depths, found.sizes, strict=True):
        assert size == len(text[:depth].encode("utf-8", "surrogatepass"))
    if found.hashes:
        assert found.size == len(text.encode("utf-8", "surrogatepass"))


def test_what_is_too_deep_to_be_looked_at_counts_like_what_is_before_it() -> None:
    long = prefix_of(["水" * 100_000], 1)
    assert long.chars == 100_000 and abs(long.size - 300_000) <= 3
    assert prefix_of(["a" * 100_000], 1).size == 100_000


@pytest.mark.parametrize("turns", [[100] * 700, [65_536, 64, 9000], [1, 65_535, 100], [65_537]])
def test_of_a_long_conversation_in_chinese_the_size_is_three_times_the_length_wherever_its_turns_end(
    turns: list[int],
) -> None:
    long = prefix_of(["水" * turn for turn in turns], 1)
    assert (long.chars, long.size) == (sum(turns), 3 * sum(turns))


def test_the_names_in_a_seed_count_in_their_order() -> None:
    seeds = {seed_of(*names) for names in [("a", "b"), ("b", "a"), ("ab",), ("a",), ("a", ""), ("", "a"), ()]}
    assert len(seeds) == 7


def test_a_short_prompt_has_no_boundary() -> None:
    assert prefix_of([], 1) == ((), (), 0, (), 0)
    assert prefix_of(["x" * 200, "x" * 55], 1) == ((), (), 255, (), 255)
    assert prefix_of(["x" * 200, "x" * 56], 1).depths == (256,)


def test_more_characters_are_taken_to_be_like_those_before_and_sizes_stay_whole() -> None:
    assert Prefix((), (), 3, (), 7).followed_by(2) == Prefix((), (), 5, (), 11)
    assert isinstance(Prefix((), (), 3, (), 7).followed_by(2).size, int)
    assert Prefix((), (), 1, (), 3).followed_by(4) == Prefix((), (), 5, (), 15)
    assert Prefix((), (), 0, (), 0).followed_by(4) == Prefix((), (), 4, (), 0)


def test_a_name_that_is_no_text_has_a_seed_of_its_own() -> None:
    assert len({seed_of("\ud800"), seed_of("\ud801"), seed_of("")}) == 3
