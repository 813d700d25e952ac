"""The chain of fingerprints: what two prompts share is recognised at its depth, and nothing else is."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.prefix_chain import MAX_DEPTH_CHARS, MIN_GAP_CHARS, Prefix, prefix_of, seed_of

TEXTS = st.text(alphabet="ab \u4fe1\U0001f600\ud800\x1e\x1f", max_size=40).map(lambda text: text * 20)
PIECES = st.lists(TEXTS, max_size=8)
MOST_BOUNDARIES = 34


def common(one: Prefix, other: Prefix) -> int:
    """The depth of the deepest boundary that both have."""
    shared = set(zip(one.hashes, one.depths, strict=True)) & set(zip(other.hashes, other.depths, strict=True))
    return max((depth for _, depth in shared), default=0)


@given(PIECES, PIECES)
def test_what_follows_changes_no_boundary_before_it(pieces: list[str], more: list[str]) -> None:
    short, long = prefix_of(pieces, 1), prefix_of(pieces + more, 1)
    assert long.hashes[: len(short.hashes)] == short.hashes
    assert long.depths[: len(short.depths)] == short.depths


@given(PIECES)
def test_boundaries_deepen_within_the_prompt_and_its_bounds(pieces: list[str]) -> None:
    found = prefix_of(pieces, 1)
    assert found.chars == sum(map(len, pieces))
    assert len(found.hashes) == len(found.depths) <= MOST_BOUNDARIES
    assert all(0 <= one < 2**64 for one in found.hashes)
    assert all(one < other for one, other in pairwise(found.depths))
    assert not found.depths or (found.depths[0] >= MIN_GAP_CHARS and found.depths[-1] <= found.chars)
    assert bool(found.depths) == (found.chars >= MIN_GAP_CHARS)


@given(PIECES, st.integers(0, 7), TEXTS.filter(bool))
def test_what_differs_before_a_boundary_is_another_prefix(pieces: list[str], place: int, other: str) -> None:
    changed = [*pieces[:place], other + "!", *pieces[place + 1 :]]
    before = sum(map(len, pieces[:place]))
    one, two = prefix_of(pieces, 1), prefix_of(changed, 1)
    same = 0
    for a, b in zip("".join(pieces[place:]), "".join(changed[place:]), strict=False):
        # One separator stands for the other.
        if a.replace("\x1e", "\x1f") != b.replace("\x1e", "\x1f"):
            break
        same += 1
    assert common(one, two) <= before + same


@given(PIECES.filter(lambda pieces: sum(map(len, pieces)) >= MIN_GAP_CHARS), st.integers(2, 2**64 - 1))
def test_another_seed_shares_nothing(pieces: list[str], seed: int) -> None:
    assert common(prefix_of(pieces, 1), prefix_of(pieces, seed)) == 0


def test_where_a_piece_ends_counts_for_what_follows_it() -> None:
    text = "x" * 1000
    one, two = prefix_of([text[:500], text[500:]], 1), prefix_of([text[:300], text[300:]], 1)
    assert common(one, two) <= 300


@pytest.mark.parametrize("shared", [128, 200, 640, 1000, 3333, 10_000, 50_000])
@pytest.mark.parametrize("where", ["at the end of a message", "inside a message"])
def test_what_is_shared_is_recognised_within_a_fifth(shared: int, where: str) -> None:
    text = "".join(map(str, range(shared)))[:shared]
    pieces = [text, "question"] if where == "at the end of a message" else [text + "question "]
    for rest in ("one", "another, and longer " * 50):
        found = common(
            prefix_of([*pieces[:-1], pieces[-1] + rest], 1), prefix_of([*pieces[:-1], pieces[-1] + "!"], 1)
        )
        if where == "at the end of a message":
            assert found >= shared
        else:
            assert found >= shared - max(MIN_GAP_CHARS, shared / 5)


def test_the_end_of_a_system_prompt_is_a_boundary() -> None:
    for length in (128, 317, 600, 5000):
        assert length in prefix_of(["s" * length, "u" * 150, "a" * 211], 1).depths


def test_ends_of_messages_are_boundaries_where_they_are_small_against_the_depth() -> None:
    pieces = ["s" * 3000, *["m" * 90] * 60]
    ends = set(accumulate(map(len, pieces)))
    assert set(prefix_of(pieces, 1).depths[-3:]) <= ends


@given(PIECES)
def test_sizes_are_the_depths_in_bytes(pieces: list[str]) -> None:
    found = prefix_of(pieces, 1)
    text = "".join(pieces).encode("utf-8", "surrogatepass")
    if found.hashes:
        for depth, size in zip(found.depths, found.sizes, strict=True):
            assert size == len("".join(pieces)[:depth].encode("utf-8", "surrogatepass"))
        assert found.size == len(text)
    long = prefix_of(["\u4fe1" * 100_000], 1)
    assert long.chars == 100_000 and abs(long.size - 300_000) <= 3


@given(st.lists(st.integers(1, 60), min_size=300, max_size=400))
def test_a_long_conversation_of_short_messages_stays_within_the_bounds(lengths: list[int]) -> None:
    found = prefix_of(["m" * length for length in lengths], 1)
    assert len(found.hashes) <= MOST_BOUNDARIES
    for before, after in pairwise((0, *found.depths)):
        assert after - before >= MIN_GAP_CHARS or before == 0
        assert after - before <= max(MIN_GAP_CHARS, after / 5) + 60


def test_beyond_the_greatest_depth_nothing_is_looked_at() -> None:
    start = "x" * MAX_DEPTH_CHARS
    one, two = prefix_of([start + "a" * 400_000], 1), prefix_of([start + "b" * 10], 1)
    assert one.hashes == two.hashes
    assert one.depths[-1] <= MAX_DEPTH_CHARS < one.chars == MAX_DEPTH_CHARS + 400_000


def test_every_process_and_machine_gives_the_same_names() -> None:
    found = prefix_of(["The system prompt. " * 20, "A question?"], seed_of("model"))
    assert [f"{one:016x}" for one in found.hashes] == [
        "d1ae65a25e2e61d1",
        "d6c6fdc995de3ab5",
        "44f12db9b72af0a8",
    ]
    assert list(found.depths) == [128, 256, 380]


def test_order_and_empty_names_count_in_a_seed() -> None:
    seeds = [seed_of(*names) for names in ((), ("a",), ("a", ""), ("", "a"), ("a", "b"), ("b", "a"), ("ab",))]
    assert len(set(seeds)) == len(seeds)
