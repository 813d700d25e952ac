"""The tokenizer's rule, and that equal beginnings have equal blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.tokens import BLOCK_TOKENS, read_text, read_token_ids, split


def test_four_ascii_characters_or_one_other_are_a_token() -> None:
    assert split("abcdefg水x利") == ["abcd", "efg", "水", "x", "利"]
    assert read_text("abcdefg水x利").tokens == 5
    assert read_text("").tokens == 0


@given(st.text(max_size=400))
def test_a_text_has_as_many_tokens_as_it_splits_into_and_a_block_for_each_sixteen(text: str) -> None:
    prompt = read_text(text)
    assert prompt.tokens == len(split(text))
    assert len(prompt.block_hashes) == prompt.tokens // BLOCK_TOKENS


@given(
    start=st.text(alphabet="ab 水利", max_size=300), one=st.text(max_size=100), other=st.text(max_size=100)
)
def test_texts_share_exactly_the_blocks_of_their_common_tokens(start: str, one: str, other: str) -> None:
    first, second = split(start + one), split(start + other)
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    blocks = zip(read_text(start + one).block_hashes, read_text(start + other).block_hashes, strict=False)
    assert sum(a == b for a, b in blocks) == common // BLOCK_TOKENS


def test_a_salt_keeps_equal_texts_apart_and_leaves_the_answer_alone() -> None:
    plain, salted = read_text("x" * 640), read_text("x" * 640, "tenant")
    assert not set(plain.block_hashes) & set(salted.block_hashes)
    assert plain.fingerprint == salted.fingerprint


def test_token_ids_share_blocks_like_texts() -> None:
    one, other = read_token_ids(list(range(48))), read_token_ids([*range(32), *range(16)])
    assert [a == b for a, b in zip(one.block_hashes, other.block_hashes, strict=True)] == [True, True, False]
