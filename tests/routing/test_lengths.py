"""What is learnt where, whose knowledge a newcomer gets, and that names cannot fill the memory."""

from __future__ import annotations

import random

import pytest

from policies.lengths import LengthRules, TextSize
from policies.outputs import OutputRules
from routing.lengths import BUSINESS_TYPES, MODELS, Lengths

SIZE = TextSize(letters=4000, messages=2)


def lengths(**output_rules: float) -> Lengths:
    return Lengths(LengthRules(), OutputRules(**output_rules))


def learn(into: Lengths, times: int, model: str, business: str, prompt: int = 900, output: int = 100) -> None:
    for _ in range(times):
        into.learned(model, business, SIZE, prompt, output)


def test_an_unknown_model_gets_the_start_values() -> None:
    estimate = lengths().arrived("new", "default", SIZE, None)
    assert estimate.prompt_tokens == pytest.approx(951)
    assert (estimate.output_mean, estimate.output_p90) == (256, 256)


def test_max_tokens_bounds_what_is_expected() -> None:
    known = lengths()
    assert known.arrived("m", "default", SIZE, 16).output_p90 == 16
    learn(known, 30, "m", "default", output=500)
    estimate = known.arrived("m", "default", SIZE, 64)
    assert (estimate.output_mean, estimate.output_p90) == (64, 64)
    assert known.arrived("m", "default", SIZE, None).output_mean == pytest.approx(500)


def test_each_model_has_its_own_price_of_a_prompt() -> None:
    known = lengths()
    learn(known, 100, "dear", "default", prompt=1500)
    learn(known, 100, "cheap", "default", prompt=700)
    assert known.arrived("dear", "other", SIZE, None).prompt_tokens == pytest.approx(1500, rel=0.03)
    assert known.arrived("cheap", "other", SIZE, None).prompt_tokens == pytest.approx(700, rel=0.03)
    assert known.correction("never seen") == known.correction("neither")


def test_a_long_known_model_still_learns() -> None:
    known = lengths()
    learn(known, 500, "m", "default", prompt=1000)
    learn(known, 8000, "m", "default", prompt=1300)
    assert known.arrived("m", "default", SIZE, None).prompt_tokens == pytest.approx(1300, rel=0.03)


def test_output_comes_from_the_business_type_then_the_model_then_everything() -> None:
    known = lengths()
    learn(known, 40, "m", "chat", output=100)
    learn(known, 40, "m", "report", output=1000)
    assert known.arrived("m", "chat", SIZE, None).output_mean == pytest.approx(100)
    assert known.arrived("m", "report", SIZE, None).output_mean == pytest.approx(1000)
    assert known.arrived("m", "new", SIZE, None).output_mean == pytest.approx(550, rel=0.1)
    learn(known, 80, "n", "chat", output=10)
    assert known.arrived("n", "chat", SIZE, None).output_mean == pytest.approx(10)
    assert 10 < known.arrived("o", "chat", SIZE, None).output_mean < 550


def test_a_histogram_speaks_only_after_enough_samples() -> None:
    known = lengths(enough_samples=5)
    learn(known, 4, "m", "chat", output=100)
    assert known.arrived("m", "chat", SIZE, None).output_mean == 256
    learn(known, 2, "m", "chat", output=100)
    assert known.arrived("m", "chat", SIZE, None).output_mean == pytest.approx(100)


def test_what_is_expected_follows_the_answers() -> None:
    known = lengths(half_life_samples=100)
    draw = random.Random(3)
    for _ in range(500):
        known.learned("m", "chat", SIZE, 900, int(draw.lognormvariate(5, 0.5)))
    before = known.arrived("m", "chat", SIZE, 1000)
    for _ in range(4000):
        known.learned("m", "chat", SIZE, 900, int(draw.lognormvariate(4, 0.5)))
    after = known.arrived("m", "chat", SIZE, 1000)
    assert after.output_mean < before.output_mean / 2
    assert after.output_p90 < before.output_p90 / 2


def test_while_an_answer_goes_on_the_expectation_is_of_the_longer_ones() -> None:
    known = lengths()
    for output in [50, 50, 50, 3000] * 20:
        known.learned("m", "chat", SIZE, 900, output)
    assert known.expected_output("m", "chat", 0, None) == pytest.approx(787, rel=0.1)
    assert known.expected_output("m", "chat", 500, None) == pytest.approx(3000, rel=0.05)
    assert known.expected_output("m", "chat", 500, 800) == 800


def test_a_report_without_tokens_is_none() -> None:
    known = lengths(enough_samples=1)
    known.learned("m", "chat", SIZE, 0, 50)
    assert known.arrived("m", "chat", SIZE, None) == lengths().arrived("m", "chat", SIZE, None)


def test_models_that_learnt_long_ago_make_room() -> None:
    known = lengths()
    learn(known, 50, "old", "default", prompt=2000)
    learn(known, 50, "busy", "default", prompt=2000)
    unknown = known.correction("unknown")
    for number in range(MODELS - 1):
        learn(known, 1, f"name-{number}", "default")
        learn(known, 1, "busy", "default", prompt=2000)
    assert known.correction("old") == unknown
    assert known.correction("busy") != unknown
    assert known.correction("name-0") != unknown
    assert known.arrived("busy", "default", SIZE, None).prompt_tokens > 1500


def test_asking_costs_no_memory_and_makes_nobody_leave() -> None:
    known = lengths()
    learn(known, 50, "m", "default", prompt=2000)
    for number in range(3 * MODELS):
        known.arrived(f"name-{number}", f"type-{number}", SIZE, number)
    assert known.arrived("m", "default", SIZE, None).prompt_tokens > 1500


def test_business_types_of_a_model_are_bounded_too() -> None:
    known = lengths(enough_samples=5)
    learn(known, 10, "m", "first", output=5000)
    for number in range(BUSINESS_TYPES):
        learn(known, 1, "m", f"type-{number}", output=5)
    assert known.arrived("m", "first", SIZE, None).output_mean < 1000
