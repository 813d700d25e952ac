"""Prompt tokens from counts: against real tokenizers' counts, and what no sample may do to the estimate."""

from __future__ import annotations

import json
import random
from math import inf, log, sqrt
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.lengths import (
    PARTS,
    TOKEN_CHARS,
    UNCORRECTED,
    Correction,
    LengthRules,
    StartRates,
    TextSize,
    corrected,
    length_class,
    priced,
    prices,
)
from policies.terms import LengthClass

RULES = LengthRules()


def estimate_tokens(size: TextSize, correction: Correction, rules: LengthRules) -> float:
    return priced(size, prices(correction, rules))


RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded_tokens.json").read_text(encoding="utf-8")
)
TOKENIZERS = list(RECORDED["tokenizers"])
REQUESTS = [(kind, TextSize(*size), tokens) for kind, size, tokens in RECORDED["requests"]]
MIX = ("zh", "en", "code", "mixed")

sizes = st.builds(
    TextSize,
    wide=st.floats(0, 1e6),
    accented=st.floats(0, 1e6),
    letters=st.floats(0, 1e6),
    digits=st.floats(0, 1e5),
    marks=st.floats(0, 1e5),
    spaces=st.floats(0, 1e5),
    lines=st.floats(0, 1e5),
    messages=st.integers(0, 500),
    tools=st.integers(0, 100),
    images=st.integers(0, 20),
    small_images=st.integers(0, 20),
    audio_bytes=st.floats(0, 1e7),
    token_ids=st.integers(0, 10_000),
)


def after(samples: int, size: TextSize, tokens: float, start: Correction = UNCORRECTED) -> Correction:
    correction = start
    for _ in range(samples):
        correction = corrected(correction, size, tokens, RULES)
    return correction


def errors_after(samples: int, tokenizer: str, seed: int) -> dict[str, list[float]]:
    """Relative errors of the estimates that follow the first `samples`, by kind of text."""
    index = TOKENIZERS.index(tokenizer)
    requests = REQUESTS.copy()
    random.Random(seed).shuffle(requests)
    correction = UNCORRECTED
    errors: dict[str, list[float]] = {}
    for position, (kind, size, tokens) in enumerate(requests):
        if position >= samples:
            error = abs(estimate_tokens(size, correction, RULES) - tokens[index]) / tokens[index]
            errors.setdefault(kind, []).append(error)
        correction = corrected(correction, size, tokens[index], RULES)
    return errors


def summary(errors: list[float]) -> tuple[float, float]:
    """Median and 90th percentile."""
    return median(errors), quantiles(errors, n=10)[-1]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_after_100_samples_half_of_the_estimates_are_within_a_tenth_and_nine_in_ten_within_a_quarter(
    tokenizer: str,
) -> None:
    errors: dict[str, list[float]] = {}
    for seed in range(3):
        for kind, found in errors_after(100, tokenizer, seed).items():
            errors.setdefault(kind, []).extend(found)
    for kind, found in sorted(errors.items()):
        middle, upper = summary(found)
        print(f"{tokenizer:>10} {kind:>8}: median {middle:.1%}, P90 {upper:.1%} of {len(found)}")
    mix = [error for kind in MIX for error in errors[kind]]
    everything = [error for found in errors.values() for error in found]
    for middle, upper in (summary(mix), summary(everything)):
        assert middle <= 0.08
        assert upper <= 0.22
    for kind in MIX:
        assert summary(errors[kind])[0] <= 0.10, kind


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_learning_makes_the_estimate_better_than_the_start_rates_were(tokenizer: str) -> None:
    index = TOKENIZERS.index(tokenizer)
    before = [
        abs(estimate_tokens(size, UNCORRECTED, RULES) / tokens[index] - 1) for _, size, tokens in REQUESTS
    ]
    learnt = [error for found in errors_after(100, tokenizer, 0).values() for error in found]
    assert summary(learnt)[0] < summary(before)[0]
    assert summary(learnt)[1] < summary(before)[1]


def test_one_kind_of_text_does_not_spoil_the_price_of_another() -> None:
    chinese, english = TextSize(wide=1000), TextSize(letters=4000)
    correction = after(100, chinese, 1800)
    assert estimate_tokens(chinese, correction, RULES) == pytest.approx(1800, rel=0.05)
    assert estimate_tokens(english, correction, RULES) == estimate_tokens(english, UNCORRECTED, RULES)


def test_an_images_price_is_learnt_from_prompts_that_are_mostly_image_and_the_text_keeps_its_own() -> None:
    text, picture = TextSize(letters=400, messages=1), TextSize(letters=400, messages=1, images=2)
    words = estimate_tokens(text, UNCORRECTED, RULES)
    correction = after(60, picture, words + 2 * 4200)
    assert estimate_tokens(picture, correction, RULES) == pytest.approx(words + 2 * 4200, rel=0.05)
    assert estimate_tokens(text, correction, RULES) == pytest.approx(words, rel=0.3)


def test_token_ids_need_no_estimate() -> None:
    assert estimate_tokens(TextSize(token_ids=777), UNCORRECTED, RULES) == 777
    assert after(5, TextSize(token_ids=777), 777) == UNCORRECTED


@pytest.mark.parametrize("tokens", [0, -3, float("nan"), float("inf")])
def test_a_report_of_nothing_teaches_nothing(tokens: float) -> None:
    assert after(1, TextSize(letters=1000), tokens) == UNCORRECTED


@pytest.mark.parametrize("absurd", [1, 10_000_000])
def test_one_absurd_sample_moves_a_settled_estimate_by_little(absurd: float) -> None:
    size = TextSize(letters=4000, messages=2)
    settled = after(200, size, 1000)
    shaken = after(1, size, absurd, settled)
    assert estimate_tokens(size, shaken, RULES) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize("absurd", [1, 10_000_000])
def test_an_absurd_first_sample_is_outvoted_within_thirty(absurd: float) -> None:
    size = TextSize(letters=4000, messages=2)
    correction = after(30, size, 1000, after(1, size, absurd))
    assert estimate_tokens(size, correction, RULES) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_tokenizer_five_times_off_is_found(factor: float) -> None:
    size = TextSize(letters=4000, wide=100, messages=2)
    truth = factor * estimate_tokens(size, UNCORRECTED, RULES)
    assert estimate_tokens(size, after(100, size, truth), RULES) == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("half_life", [50.0, 200.0])
def test_a_changed_tokenizer_is_followed_by_half_within_the_half_life(half_life: float) -> None:
    rules = LengthRules(half_life_samples=half_life)
    size = TextSize(letters=4000)
    correction = UNCORRECTED
    for _ in range(20 * int(half_life)):
        correction = corrected(correction, size, 1000, rules)
    for _ in range(int(half_life)):
        correction = corrected(correction, size, 1200, rules)
    assert estimate_tokens(size, correction, rules) == pytest.approx(1100, abs=20)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("error", [-0.9, -0.1, 0.0, 0.1, 4.0])
def test_one_sample_moves_a_price_and_its_variance_as_the_filter_says(scale: float, error: float) -> None:
    letters = PARTS.index("letters")
    scales = [1.0] * len(PARTS)
    scales[letters] = scale
    before = Correction(tuple(scales))
    estimate = estimate_tokens(TextSize(letters=4000), before, RULES)
    after = corrected(before, TextSize(letters=4000), estimate * (1 + error), RULES)
    variance, noise, share = before.variances[letters], RULES.noise**2, 1 / scale
    spread = variance * share**2 + noise
    belief = min(1, 2 * sqrt(spread) / abs(error)) if error else 1
    assert after.scales[letters] == pytest.approx(scale + belief * variance * share * error / spread)
    growth = min(1, share) * noise * (log(2) / RULES.half_life_samples) ** 2
    left = variance - belief * (variance * share) ** 2 / spread
    assert after.variances[letters] - left == pytest.approx(growth, rel=1e-6)
    others = [part for part in range(len(PARTS)) if part != letters]
    assert all(after.scales[part] == 1.0 for part in others)
    assert all(after.variances[part] == before.variances[part] for part in others)


@pytest.mark.parametrize(
    ("size", "teaches"),
    [
        (TextSize(digits=0.99), False),
        (TextSize(digits=1.0), True),
        (TextSize(digits=1.5), True),
        (TextSize(digits=inf), False),
    ],
)
def test_a_text_teaches_from_one_token_on(size: TextSize, teaches: bool) -> None:
    assert (corrected(UNCORRECTED, size, 3, RULES) != UNCORRECTED) is teaches


def test_noisier_rules_learn_more_slowly() -> None:
    size = TextSize(letters=4000)
    quick = corrected(UNCORRECTED, size, 1300, LengthRules(noise=0.1))
    slow = corrected(UNCORRECTED, size, 1300, LengthRules(noise=0.5))
    assert quick.scales[PARTS.index("letters")] > slow.scales[PARTS.index("letters")] > 1


def test_start_rates_are_what_an_unknown_model_is_estimated_by() -> None:
    size = TextSize(
        wide=10, accented=10, letters=100, digits=10, marks=10, spaces=10, lines=10,
        messages=2, tools=1, images=1, small_images=1, audio_bytes=100,
    )  # fmt: skip
    rates = StartRates(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    expected = 10 + 20 + 300 + 40 + 50 + 60 + 70 + (8 + 18) + (10 + 11) + 12 + 13 + 1400
    assert estimate_tokens(size, UNCORRECTED, LengthRules(rates=rates)) == expected


@given(
    samples=st.lists(st.tuples(sizes, st.one_of(st.integers(-10, 10**9), st.floats())), max_size=30),
    size=sizes,
)
def test_whatever_was_reported_the_estimate_stays_within_its_bounds(
    samples: list[tuple[TextSize, float]], size: TextSize
) -> None:
    correction = UNCORRECTED
    for seen, tokens in samples:
        correction = corrected(correction, seen, tokens, RULES)
    start = estimate_tokens(size._replace(token_ids=0), UNCORRECTED, RULES)
    estimate = estimate_tokens(size, correction, RULES) - size.token_ids
    assert start / 33 - 1e-3 <= estimate <= start * 33 + 1e-3
    assert all(
        0 <= left <= at_start
        for left, at_start in zip(correction.variances, UNCORRECTED.variances, strict=True)
    )


@given(size=sizes, more=sizes)
def test_more_of_anything_is_never_fewer_tokens(size: TextSize, more: TextSize) -> None:
    both = TextSize._make(a + b for a, b in zip(size, more, strict=True))
    assert estimate_tokens(both, UNCORRECTED, RULES) >= estimate_tokens(size, UNCORRECTED, RULES) - 1e-6


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, LengthClass.SHORT),
        (511.9, LengthClass.SHORT),
        (512, LengthClass.MEDIUM),
        (4096, LengthClass.MEDIUM),
        (4096.5, LengthClass.LONG),
    ],
)
def test_classes_meet_at_their_bounds(tokens: float, expected: LengthClass) -> None:
    assert length_class(tokens, RULES) is expected


def test_class_bounds_can_be_set() -> None:
    rules = LengthRules(short_below=100, long_above=200)
    assert [length_class(tokens, rules) for tokens in (99, 150, 201)] == [
        LengthClass.SHORT,
        LengthClass.MEDIUM,
        LengthClass.LONG,
    ]


@pytest.mark.parametrize(("tokens", "factor"), [(10**9, 32.0), (1, 1 / 32)])
def test_however_often_an_absurd_count_is_reported_a_price_ends_at_its_bound(
    tokens: int, factor: float
) -> None:
    size = TextSize(letters=10_000)
    correction = UNCORRECTED
    for _ in range(5_000):
        correction = corrected(correction, size, tokens, RULES)
    assert estimate_tokens(size, correction, RULES) == pytest.approx(
        factor * estimate_tokens(size, UNCORRECTED, RULES)
    )


def test_characters_are_all_text_and_what_token_ids_stand_for() -> None:
    size = TextSize(1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100.0, 10)
    assert size.chars == 127 + 10 * TOKEN_CHARS


@pytest.mark.parametrize(
    "size",
    [
        TextSize(letters=400.0),
        TextSize(letters=400.0, messages=3),
        TextSize(letters=400.0, tools=2),
        TextSize(letters=400.0, images=1, small_images=2),
        TextSize(marks=40.0, lines=10.0, spaces=50.0, audio_bytes=1e5),
    ],
)
def test_an_estimate_that_was_right_changes_no_price(size: TextSize) -> None:
    tokens = estimate_tokens(size, UNCORRECTED, RULES)
    after = corrected(UNCORRECTED, size, tokens, RULES)
    assert after.scales == pytest.approx(UNCORRECTED.scales)
    assert sum(after.variances) < sum(UNCORRECTED.variances), "and makes the prices surer"


def test_token_ids_teach_nothing_of_the_text_beside_them() -> None:
    text = TextSize(letters=400.0)
    with_ids = text._replace(token_ids=1000)
    assert corrected(UNCORRECTED, with_ids, 1150.0, RULES) == corrected(UNCORRECTED, text, 150.0, RULES)
    assert corrected(UNCORRECTED, with_ids, 1000.0, RULES) == UNCORRECTED
