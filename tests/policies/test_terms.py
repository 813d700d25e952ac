"""The words of the layers above are labels: closed, lower-case and few."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.terms import UNTAGGED, Lane, Refusal, Tag, Verdict


@pytest.mark.parametrize("words", [Lane, Verdict, Refusal])
def test_every_word_can_be_a_metric_label(words: type[StrEnum]) -> None:
    assert all(re.fullmatch(r"[a-z][a-z_]{0,30}", word.value) for word in words)
    assert len(words) < 40


def test_lanes_stand_in_order_of_urgency() -> None:
    assert list(Lane) == [Lane.EMERGENCY, Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH]


@given(st.text(), st.sampled_from(Lane))
def test_a_tag_is_a_value(business: str, lane: Lane) -> None:
    assert Tag(business=business, lane=lane) == Tag(business=business, lane=lane)
    assert len({Tag(business=business), Tag(business=business)}) == 1
    assert Tag() == UNTAGGED
