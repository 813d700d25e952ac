"""The best backend is found without looking at all of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from hypothesis import given
from hypothesis import settings as configured
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.least_time import load_key
from routing.idle_order import IdleOrder


class Engine:
    def __init__(self, window: int = 4) -> None:
        self.in_flight = 0
        self.window = window
        self.slowdown = 1.0
        self.absent = False
        self.turn = 0


def key(engine: Engine) -> float:
    return inf if engine.absent else load_key(engine.in_flight, engine.window, engine.slowdown)


class AgainstAFullScan(RuleBasedStateMachine):
    """Whatever happens, the answer is that of a full scan, equals in the order of their last change."""

    def __init__(self) -> None:
        super().__init__()
        self.engines = [Engine(window) for window in (1, 2, 4, 4, 4)]
        self.turn = 0
        self.order = IdleOrder(key, ())
        for engine in self.engines:
            self.note(engine, self.order.add)

    def note(self, engine: Engine, tell: Callable[[Engine], None]) -> None:
        self.turn += 1
        engine.turn = self.turn
        tell(engine)

    def scan(self, exclude: list[Engine]) -> Engine | None:
        usable = [one for one in self.engines if key(one) != inf and one not in exclude]
        return min(usable, key=lambda one: (key(one), one.turn), default=None)

    @rule(excluded=st.sets(st.integers(0, 7)))
    def take(self, excluded: set[int]) -> None:
        exclude = [engine for index, engine in enumerate(self.engines) if index in excluded]
        best = self.order.best(exclude)
        assert best is self.scan(exclude)
        if best is not None:
            best.in_flight += 1
            self.note(best, self.order.changed)

    @precondition(lambda self: any(one.in_flight for one in self.engines))
    @rule(draw=st.integers(0, 100))
    def give_back(self, draw: int) -> None:
        busy = [one for one in self.engines if one.in_flight]
        engine = busy[draw % len(busy)]
        engine.in_flight -= 1
        self.note(engine, self.order.changed)

    @precondition(lambda self: bool(self.engines))
    @rule(
        draw=st.integers(0, 100),
        window=st.integers(0, 6),
        slowdown=st.sampled_from([0.5, 1.0, 3.0]),
        absent=st.booleans(),
    )
    def change(self, draw: int, window: int, slowdown: float, absent: bool) -> None:
        engine = self.engines[draw % len(self.engines)]
        engine.window, engine.slowdown, engine.absent = window, slowdown, absent
        self.note(engine, self.order.changed)

    @precondition(lambda self: len(self.engines) < 8)
    @rule()
    def come(self) -> None:
        self.engines.append(Engine())
        self.note(self.engines[-1], self.order.add)

    @precondition(lambda self: bool(self.engines))
    @rule(draw=st.integers(0, 100))
    def leave(self, draw: int) -> None:
        gone = self.engines.pop(draw % len(self.engines))
        self.order.remove(gone)
        self.order.changed(gone)  # its last request ends after it left
        assert gone not in self.order

    @invariant()
    def the_best_is_the_best_of_all(self) -> None:
        assert self.order.best() is self.scan([])
        assert len(self.order) == len(self.engines)


AgainstAFullScan.TestCase.settings = configured(max_examples=40, stateful_step_count=40)
test_against_a_full_scan = AgainstAFullScan.TestCase


@given(st.integers(1, 20), st.integers(1, 3))
def test_an_idle_fleet_is_used_in_turn_request_after_request(count: int, rounds: int) -> None:
    engines = [Engine() for _ in range(count)]
    order = IdleOrder(key, engines)
    used = []
    for _ in range(rounds * count):
        best = order.best()
        assert best is not None
        used.append(engines.index(best))
        for step in (1, -1):
            best.in_flight += step
            order.changed(best)
    assert used == list(range(count)) * rounds


@given(st.integers(1, 8), st.integers(1, 4))
def test_requests_that_stay_fill_every_window_evenly_and_then_nobody_is_left(count: int, window: int) -> None:
    engines = [Engine(window) for _ in range(count)]
    order = IdleOrder(key, engines)
    while (best := order.best()) is not None:
        best.in_flight += 1
        order.changed(best)
        held = [engine.in_flight for engine in engines]
        assert max(held) - min(held) <= 1
    assert all(engine.in_flight == window for engine in engines)


def test_the_heap_stays_in_proportion_to_its_members_and_loses_none() -> None:
    engines = [Engine(100) for _ in range(10)]
    order = IdleOrder(key, engines)
    changed = {engine: index - len(engines) for index, engine in enumerate(engines)}
    for step in range(2000):
        engine = engines[step * 7 % 10]
        engine.in_flight = step % 100
        order.changed(engine)
        changed[engine] = step
        assert order.best() is min(engines, key=lambda one: (key(one), changed[one]))
        assert order.entries <= 4 * len(engines) + 16


def test_who_is_excluded_is_there_the_next_time() -> None:
    engines = [Engine(), Engine()]
    order = IdleOrder(key, engines)
    assert order.best((engines[0],)) is engines[1]
    assert order.best(engines) is None
    assert order.best() is engines[0]
