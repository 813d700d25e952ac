"""Which beginnings of prompts have names, and that two prompts have the names of what they share in common and no others."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.prefix_chain import MAX_DEPTH_CHARS, MIN_GAP_CHARS, Prefix, prefix_of, seed_of

MOST_BOUNDARIES = 39
SEED = seed_of("model")
# Few sorts of character: short ones and long ones in UTF-8, both separators, half a surrogate pair.
CHARACTERS = "ab 水é😀\x1e\x1f\ud800\n"


@st.composite
def pieces(draw: st.DrawFn, least: int = 0) -> list[str]:
    """Pieces around the sizes at which the rules of the boundaries change; long ones are a drawn text repeated."""
    lengths = draw(
        st.lists(
            st.integers(0, 40) | st.integers(100, 400) | st.sampled_from([127, 128, 129, 1000, 5000]),
            min_size=least,
            max_size=12,
        )
    )
    unit = draw(st.text(CHARACTERS, min_size=1, max_size=9) | st.text(min_size=1, max_size=9))
    return [(unit * (length // len(unit) + 1))[:length] for length in lengths]


def shared_depth(one: Prefix, other: Prefix) -> int:
    """The depth of the deepest boundary down to which both have the same hashes."""
    depth = 0
    both = zip(one.hashes, other.hashes, one.depths, strict=False)
    for mine, theirs, mine_depth in both:
        if mine != theirs:
            break
        depth = mine_depth
    return depth


def beginning(texts: list[str], depth: int) -> tuple[str, list[int]]:
    """What a name stands for: the text before a depth, and where pieces ended in it."""
    text = "".join(texts).replace("\x1e", "\x1f")[:depth]
    return text, [end for end in accumulate(map(len, texts)) if end < depth]


def named_beginnings(texts: list[str]) -> dict[int, tuple[str, list[int]]]:
    prefix = prefix_of(texts, SEED)
    return {name: beginning(texts, depth) for depth, name in zip(prefix.depths, prefix.hashes, strict=True)}


@given(start=pieces(), more=pieces())
def test_a_prompt_that_goes_on_keeps_every_boundary(start: list[str], more: list[str]) -> None:
    before, after = prefix_of(start, SEED), prefix_of(start + more, SEED)
    assert after.hashes[: len(before.hashes)] == before.hashes
    assert after.depths[: len(before.depths)] == before.depths


@given(texts=pieces(), more=st.text(CHARACTERS, max_size=300))
def test_a_last_message_that_grows_loses_at_most_the_boundary_at_its_end(texts: list[str], more: str) -> None:
    before = prefix_of(texts, SEED)
    after = prefix_of([*texts[:-1], (texts[-1] if texts else "") + more], SEED)
    kept = before.depths[:-1] if before.depths and before.depths[-1] == before.chars else before.depths
    assert after.depths[: len(kept)] == kept
    assert after.hashes[: len(kept)] == before.hashes[: len(kept)]


@given(start=pieces(least=1), one=pieces(), other=pieces())
def test_equal_names_are_equal_beginnings_and_the_reverse(
    start: list[str], one: list[str], other: list[str]
) -> None:
    mine, theirs = named_beginnings(start + one), named_beginnings(start + other)
    for name, text in theirs.items():
        assert (name in mine) == (text in mine.values())
        assert mine.get(name, text) == text


@given(texts=pieces(), data=st.data())
def test_hashes_differ_from_where_one_character_differs(texts: list[str], data: st.DataObject) -> None:
    prefix = prefix_of(texts, SEED)
    if not prefix.chars:
        return
    at = data.draw(st.integers(0, prefix.chars - 1))
    changed, position = list(texts), at
    index = 0
    while position >= len(changed[index]):
        position -= len(changed[index])
        index += 1
    text = changed[index]
    changed[index] = text[:position] + ("y" if text[position] == "x" else "x") + text[position + 1 :]
    other = prefix_of(changed, SEED)
    assert other.depths == prefix.depths
    for depth, mine, theirs in zip(prefix.depths, prefix.hashes, other.hashes, strict=True):
        assert (mine == theirs) == (depth <= at)


@given(start=pieces(), one=pieces(), other=pieces(), text=st.text(CHARACTERS, max_size=500))
@example(start=[], one=["水" * 4000], other=["水" * 3000 + "利" * 1000], text="")
def test_what_two_prompts_share_is_recognised_but_for_a_fifth_or_128_characters(
    start: list[str], one: list[str], other: list[str], text: str
) -> None:
    first = [*start, text + "".join(one[:1]), *one[1:]]
    second = [*start, text + "".join(other[:1]), *other[1:]]
    shared = 0
    # A message's end is a character here as well: it is one that two prompts can share or not.
    lines = ["\x1e".join(piece.replace("\x1e", "\x1f") for piece in texts) for texts in (first, second)]
    for mine, theirs in zip(*lines, strict=False):
        if mine != theirs:
            break
        shared += mine != "\x1e"
    shared = min(shared, MAX_DEPTH_CHARS)
    depth = shared_depth(prefix_of(first, SEED), prefix_of(second, SEED))
    assert depth <= shared
    if shared:
        assert depth > shared - max(MIN_GAP_CHARS, shared / 5)


@given(pieces())
def test_no_gap_is_below_the_least_and_none_is_wider_than_the_greatest(texts: list[str]) -> None:
    prefix = prefix_of(texts, SEED)
    assert prefix.chars == sum(map(len, texts))
    assert len(prefix.hashes) == len(prefix.depths) == len(set(prefix.hashes))
    before = 0
    for depth in prefix.depths:
        gap = depth - before
        assert gap < max(MIN_GAP_CHARS, depth / 5) + 1
        if gap < MIN_GAP_CHARS:
            # Nearer only at the end of a long piece, which has a boundary of its own inside.
            assert is_end_of_long_piece(texts, depth)
        before = depth
    rest = min(prefix.chars, MAX_DEPTH_CHARS) - before
    assert rest < max(MIN_GAP_CHARS, (before + rest) / 5)


def is_end_of_long_piece(texts: list[str], depth: int) -> bool:
    ends = accumulate(map(len, texts))
    return any(
        end == depth and len(text) >= max(MIN_GAP_CHARS, end / 3)
        for end, text in zip(ends, texts, strict=True)
    )


@given(st.lists(st.integers(1, 400), min_size=8, max_size=40))
def test_a_conversation_of_short_messages_has_boundaries_at_message_ends_only(lengths: list[int]) -> None:
    texts = ["s" * 10_000, *("m" * length for length in lengths)]
    ends = set(accumulate(map(len, texts)))
    depths = prefix_of(texts, SEED).depths
    assert 10_000 in depths
    assert all(depth in ends for depth in depths if depth > 10_000)


@given(before=st.integers(0, 3000), length=st.integers(128, 6000), after=st.integers(0, 500))
def test_a_long_message_has_a_boundary_at_its_end(before: int, length: int, after: int) -> None:
    end = before + length
    depths = prefix_of(["b" * before, "l" * length, "a" * after], SEED).depths
    assert (end in depths) or 3 * length < end


def test_the_end_of_a_short_message_is_a_boundary_from_a_sixth_of_its_depth_on() -> None:
    assert 7_200 in prefix_of(["s" * 6_000, "m" * 1_200, "m" * 2_000], SEED).depths
    assert 7_199 not in prefix_of(["s" * 6_000, "m" * 1_199, "m" * 2_000], SEED).depths


def test_a_boundary_stands_at_the_end_and_not_at_the_place_behind_it() -> None:
    assert prefix_of(["s" * 150, "u" * 400], SEED).depths == (128, 150, 278, 406, 534, 550)
    assert prefix_of(["s" * 100, "u" * 400], SEED).depths == (128, 256, 384, 500)


@pytest.mark.parametrize(
    "lengths",
    [
        [500_000],
        [MAX_DEPTH_CHARS],
        [1] * 70_000,
        [127] * 600,
        [128] * 600,
        [129] * 600,
        [2**exponent for exponent in range(20)],
        [round(1.5**exponent) for exponent in range(32)],
    ],
    ids=["one", "one of the greatest depth", "ones", "127", "128", "129", "doubling", "by half"],
)
def test_boundaries_are_few_and_not_too_deep(lengths: list[int]) -> None:
    prefix = prefix_of(["x" * length for length in lengths], SEED)
    assert prefix.chars == sum(lengths)
    assert 20 <= len(prefix.depths) <= MOST_BOUNDARIES
    assert MAX_DEPTH_CHARS * 4 / 5 < prefix.depths[-1] <= MAX_DEPTH_CHARS
    assert prefix.depths == tuple(sorted(set(prefix.depths)))


def test_no_lengths_of_messages_make_more_boundaries() -> None:
    """The worst that there is: each message is a third of all before it, and ends one character behind a place."""
    lengths: list[int] = []
    depth = 0
    while depth < MAX_DEPTH_CHARS:
        start = depth
        while depth - start < MIN_GAP_CHARS or 3 * (depth - start) < depth + 1:
            depth += max(MIN_GAP_CHARS, -(-depth // 4))
        depth += 1
        lengths.append(depth - start)
    assert 30 < len(prefix_of(["x" * length for length in lengths], SEED).depths) <= MOST_BOUNDARIES


@given(st.lists(st.integers(1, 30_000), max_size=60))
def test_drawn_lengths_make_no_more_boundaries_either(lengths: list[int]) -> None:
    assert len(prefix_of(["x" * length for length in lengths], SEED).depths) <= MOST_BOUNDARIES


def test_what_lies_below_the_greatest_depth_counts_only_as_characters() -> None:
    start = ["s" * 60_000, "u" * (MAX_DEPTH_CHARS - 60_000)]
    mine = prefix_of([*start, "one"], SEED)
    theirs = prefix_of([*start, "another", "x" * 100_000], SEED)
    assert (mine.hashes, mine.depths, mine.sizes) == (theirs.hashes, theirs.depths, theirs.sizes)
    assert mine.chars == MAX_DEPTH_CHARS + 3


def test_a_piece_cut_by_the_greatest_depth_is_no_piece_that_ends_there() -> None:
    cut, ending = prefix_of(["x" * 70_000], SEED), prefix_of(["x" * MAX_DEPTH_CHARS], SEED)
    assert ending.depths == (*cut.depths, MAX_DEPTH_CHARS)


@pytest.mark.parametrize("texts", [[], [""], ["", ""], ["x" * 127], ["x"] * 127])
def test_a_short_prompt_has_no_boundaries(texts: list[str]) -> None:
    chars = sum(map(len, texts))
    assert prefix_of(texts, SEED) == ((), (), chars, (), chars)


def test_a_prompt_of_the_least_length_has_one() -> None:
    assert prefix_of(["x" * 128], SEED).depths == (128,)


@given(texts=pieces(least=1), names=st.lists(st.text(max_size=5), min_size=2, max_size=2, unique=True))
def test_prompts_of_different_seeds_have_no_name_in_common(texts: list[str], names: list[str]) -> None:
    one, other = (prefix_of(texts, seed_of(name)) for name in names)
    assert one.depths == other.depths
    assert not set(one.hashes) & set(other.hashes)


@given(st.lists(st.lists(st.text(CHARACTERS, max_size=3), max_size=4), min_size=2, max_size=6))
def test_names_make_the_same_seed_only_if_all_and_their_order_are_equal(lists: list[list[str]]) -> None:
    assert len({seed_of(*names) for names in lists}) == len({tuple(names) for names in lists})


def test_where_a_message_ends_tells_prompts_of_equal_text_apart_only_behind_the_end() -> None:
    one, other = prefix_of(["a" * 300, "b" * 300], SEED), prefix_of(["a" * 300 + "b" * 300], SEED)
    assert one.depths[:3] == (128, 256, 300)
    assert other.depths[:3] == (128, 256, 384)
    assert one.hashes[:2] == other.hashes[:2]
    assert not set(one.hashes[2:]) & set(other.hashes[2:])


def test_the_name_at_an_end_does_not_say_that_a_message_ended_there() -> None:
    ending, going_on = prefix_of(["a" * 128], SEED), prefix_of(["a" * 128 + "b" * 300], SEED)
    assert ending.hashes == going_on.hashes[:1]


def test_an_empty_message_is_a_message() -> None:
    one, other = prefix_of(["a" * 128, "", "b" * 128], SEED), prefix_of(["a" * 128, "b" * 128], SEED)
    assert one.hashes[0] == other.hashes[0]
    assert one.hashes[1] != other.hashes[1]


def test_a_record_separator_is_no_end_of_a_message() -> None:
    inside = prefix_of(["a" * 128 + "\x1e" + "b" * 200], SEED)
    assert inside.hashes[1] != prefix_of(["a" * 128, "b" * 200], SEED).hashes[1]
    assert inside == prefix_of(["a" * 128 + "\x1f" + "b" * 200], SEED)


def test_half_a_surrogate_pair_is_a_character_like_another() -> None:
    one, other = prefix_of(["\ud83d" * 200], SEED), prefix_of(["\ude00" * 200], SEED)
    assert one.depths == other.depths == (128, 200)
    assert not set(one.hashes) & set(other.hashes)
    assert seed_of("\ud800") != seed_of("\ud801")


def test_text_that_is_all_ascii_has_the_names_that_it_has_before_other_characters() -> None:
    plain, mixed = (
        prefix_of(["s" * 500, "u" * 500], SEED),
        prefix_of(["s" * 500, "u" * 500, "水" * 500], SEED),
    )
    assert mixed.hashes[: len(plain.hashes)] == plain.hashes


def test_names_are_the_same_in_every_process_and_on_every_machine() -> None:
    """Values that were written down once: another process salts Python's own hashes anew, and must not these."""
    assert seed_of("model", "", "水\ud800") == 15087530331092690046
    prompt = ["system\n" + "be brief. " * 20, "user\n" + "水利 " * 30, "\ud800\x1e😀" * 90]
    found = prefix_of(prompt, seed_of("model"))
    assert found.depths == (128, 207, 335, 463, 572)
    assert found.hashes == (
        5313621446586703733,
        2053853971908997600,
        12709756774199339931,
        6984816155005790252,
        14832430859557878918,
    )


@given(pieces())
def test_sizes_are_the_depths_in_bytes(texts: list[str]) -> None:
    prefix, text = prefix_of(texts, SEED), "".join(texts)
    if prefix.depths:
        sizes = [len(text[:depth].encode("utf-8", "surrogatepass")) for depth in (*prefix.depths, None)]
        assert [*prefix.sizes, prefix.size] == sizes


def test_what_lies_below_the_greatest_depth_is_taken_to_be_like_the_rest() -> None:
    prefix = prefix_of(["信" * 100_000], SEED)
    assert prefix.chars == 100_000
    assert abs(prefix.size - 300_000) <= 3
    assert prefix.followed_by(50) == prefix._replace(chars=100_050, size=prefix.size + 150)
