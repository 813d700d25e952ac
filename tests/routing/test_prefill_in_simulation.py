"""The whole router in front of an emulated engine whose prefill is what runs out, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from statistics import median, quantiles

import pytest

from gateway.emulator.settings import EngineSettings
from policies.capacity_tokens import LEAST_PREFILL_TOKENS, TokenRules
from tests.emulated_fleet import Course, EmulatedFleet

MEASURED = TokenRules(prefill_seconds=1.0)
TOKENS_PER_SECOND = 10_000
Prompts = Callable[[Random], int]


def engine(step: int) -> EngineSettings:
    return EngineSettings(
        prefill_tokens_per_second=TOKENS_PER_SECOND,
        max_num_batched_tokens=step,
        max_num_seqs=64,
        kv_blocks=16_384,
        prefix_caching=False,
    )


def even(random: Random) -> int:
    return random.randint(100, 4000)


def mixed(random: Random) -> int:
    return 8000 if random.random() < 0.1 else random.randint(100, 800)


def short(random: Random) -> int:
    return random.randint(50, 300)


def p95(course: Course) -> float:
    return quantiles(course.first_byte_seconds, n=20)[-1]


def known(course: Course) -> list[float]:
    return [rate for rate in course.rates if rate is not None]


@pytest.mark.parametrize("step", [2048, 8192])
@pytest.mark.parametrize(
    ("prompt", "per_second"),
    [(even, 3.0), (even, 4.4), (even, 6.5), (mixed, 6.4), (mixed, 10.0), (short, 60.0)],
    ids=["even at 0.6", "even at 0.9", "even at 1.3", "mixed at 0.8", "mixed at 1.3", "short at 1.3"],
)
def test_the_rate_is_what_the_engine_prefills_under_load(
    prompt: Prompts, per_second: float, step: int
) -> None:
    fleet = EmulatedFleet(engine(step), MEASURED, per_second, prompt)
    fleet.run(60)
    course = fleet.run(120)
    assert median(known(course)) == pytest.approx(course.prefilled / course.prefill_seconds, rel=0.2)


@pytest.mark.parametrize("step", [2048, 8192])
@pytest.mark.parametrize(
    ("prompt", "per_second", "streamed"),
    [
        (even, 4.4, 1.0),
        (even, 6.5, 1.0),
        (even, 4.4, 0.5),
        (even, 6.5, 0.5),
        (even, 6.5, 0.0),
        (short, 60.0, 1.0),
    ],
)
def test_the_engine_prefills_as_much_with_the_limit_as_without(
    prompt: Prompts, per_second: float, streamed: float, step: int
) -> None:
    free, bound = (
        EmulatedFleet(engine(step), rules, per_second, prompt, streamed=streamed).run(100).prefilled
        for rules in (None, MEASURED)
    )
    assert bound >= 0.98 * free


def test_a_prompt_that_is_sent_has_its_first_byte_in_about_the_seconds_that_were_asked_for() -> None:
    free, bound = (EmulatedFleet(engine(2048), rules, 6.5, even) for rules in (None, MEASURED))
    for fleet in (free, bound):
        fleet.run(60)
    assert p95(free.run(120)) > 5.0
    assert p95(bound.run(120)) < 1.25


@pytest.mark.parametrize("step", [2048, 8192])
def test_a_prefill_that_is_three_times_slower_shrinks_the_limit_and_it_comes_back(step: int) -> None:
    fleet = EmulatedFleet(engine(step), MEASURED, 2.5, even)
    fleet.run(60)
    before = median(fleet.run(60).limits)
    fleet.slowdown = 3.0
    fleet.run(60)
    slow = median(fleet.run(60).limits)
    assert slow == pytest.approx(before / 3, rel=0.2)
    fleet.slowdown = 1.0
    fleet.run(60)
    assert median(fleet.run(60).limits) == pytest.approx(before, rel=0.2)


def test_answers_that_are_not_streamed_are_never_held_back_by_each_other() -> None:
    course = EmulatedFleet(engine(2048), MEASURED, 6.5, even, streamed=0.0).run(120)
    assert set(course.limits) == {inf}


def test_the_limit_is_never_below_what_an_engine_computes_in_one_step() -> None:
    fleet = EmulatedFleet(engine(2048), TokenRules(prefill_seconds=0.01), 4.4, even)
    fleet.run(60)
    assert set(fleet.run(60).limits) == {LEAST_PREFILL_TOKENS}


def test_an_engine_that_comes_back_is_measured_anew() -> None:
    fleet = EmulatedFleet(engine(2048), MEASURED, 4.4, even)
    fleet.run(60)
    room = fleet.backend.room
    assert room is not None and room.max_prefill_tokens < inf
    fleet.router.unreachable(fleet.backend, fleet.now)
    fleet.router.engines.probed(fleet.backend.id, True, False, fleet.now)
    assert room.max_prefill_tokens == inf
    fleet.run(60)
    assert room.max_prefill_tokens == pytest.approx(TOKENS_PER_SECOND, rel=0.2)
