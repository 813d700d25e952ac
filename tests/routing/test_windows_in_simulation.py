"""A window in front of an engine of continuous batching, in virtual time."""

from __future__ import annotations

from statistics import mean, median

import pytest

from policies.windows import WindowRules
from tests.virtual_engine import Simulation, VirtualEngine

RULES = WindowRules(start=8, min=4, max=32)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("spread", [0.0, 0.2, 0.5])
def test_it_settles_near_the_engines_batch_without_giving_up_throughput(spread: float, seed: int) -> None:
    engine = VirtualEngine(max_num_seqs=16, spread=spread, seed=seed)
    simulation = Simulation(engine, RULES)
    simulation.run(60)
    per_second, limits = simulation.run(240)
    assert 14 <= mean(limits) <= 21
    assert per_second >= 0.93 * engine.saturation_per_second()


def test_the_engines_own_queue_brings_it_closer() -> None:
    engine = VirtualEngine(max_num_seqs=16)
    simulation = Simulation(engine, RULES, polls=True)
    simulation.run(120)
    per_second, limits = simulation.run(240)
    assert 15 <= mean(limits) <= 19
    assert per_second >= 0.95 * engine.saturation_per_second()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_that_is_three_times_slower_shrinks_it_and_it_comes_back(seed: int) -> None:
    engine = VirtualEngine(seed=seed)
    simulation = Simulation(engine, RULES)
    _, before = simulation.run(120)
    engine.slowness = 3.0
    _, slow = simulation.run(20)
    assert min(slow) <= 0.6 * mean(before[60:])
    engine.slowness = 1.0
    simulation.run(30)
    per_second, limits = simulation.run(60)
    assert median(limits) >= 14, "but for a halving of three seconds"
    assert per_second >= 0.93 * engine.saturation_per_second()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_that_stays_slower_gets_its_batch_again(seed: int) -> None:
    engine = VirtualEngine(seed=seed)
    simulation = Simulation(engine, RULES)
    simulation.run(120)
    engine.slowness = 3.0
    simulation.run(90)
    per_second, _ = simulation.run(120)
    assert per_second >= 0.93 * engine.saturation_per_second()


def test_an_idle_hour_changes_nothing() -> None:
    engine = VirtualEngine()
    simulation = Simulation(engine, RULES)
    per_second, _ = simulation.run(120)
    simulation.rate = 0.0
    simulation.run(1)  # what was under way ends
    limit = simulation.window.limit
    _, limits = simulation.run(3600)
    assert set(limits) == {limit}
    simulation.rate = float("inf")
    again, _ = simulation.run(60)
    assert again == pytest.approx(per_second, rel=0.05)


def test_thirty_minutes_of_steady_load_vary_by_less_than_five_percent() -> None:
    simulation = Simulation(VirtualEngine(), RULES)
    simulation.run(60)
    minutes = [simulation.run(60)[0] for _ in range(30)]
    assert max(minutes) - min(minutes) < 0.05 * mean(minutes)


@pytest.mark.parametrize("share", [0.25, 0.6, 0.8])
def test_a_load_that_the_engine_can_carry_is_never_held_back(share: float) -> None:
    engine = VirtualEngine()
    rate = share * engine.saturation_per_second()
    simulation = Simulation(engine, RULES, rate=rate)
    per_second, _ = simulation.run(300)
    assert per_second == pytest.approx(rate, rel=0.03)


def test_services_of_many_seconds_settle_as_well() -> None:
    engine = VirtualEngine(base_seconds=3.0, slope_seconds=0.1)
    simulation = Simulation(engine, RULES)
    simulation.run(300)
    per_second, limits = simulation.run(900)
    assert 12 <= mean(limits) <= 22
    assert per_second >= 0.9 * engine.saturation_per_second()
