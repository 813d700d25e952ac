"""When which call is made: an open loop of Poisson arrivals, the same for everyone who is measured with the same seed.

Phases follow each other without a gap; the load of a phase is `factor` times the nominal rate. `standard_phases` are a warm-up that counts
nowhere, a steady time, a burst and the time after it. `overload_phases` have a burst of 2 first, so that the longer and higher one can be compared with
it inside one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.bench.slo.kinds import CHINESE_SHARE, EMERGENCY_SHARE, KINDS, NOMINAL_RATE, OUTPUT_TOKENS

WARM_UP, STEADY, BURST, AFTER = "warm-up", "steady", "burst", "after"
REFERENCE, BETWEEN = "burst of 2", "between"
STEADY_FACTOR = 0.8
STANDARD_BURST = 2.0


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    factor: float
    seconds: float


class Call(NamedTuple):
    due: float
    """Seconds since the schedule's beginning."""
    phase: int
    kind: int
    emergency: bool
    chinese: bool
    prompt_tokens: int
    output_tokens: int


def standard_phases(
    *,
    steady_seconds: float = 15.0,
    burst: float = STANDARD_BURST,
    burst_seconds: float = 10.0,
    warm_up_seconds: float = 5.0,
) -> tuple[Phase, ...]:
    return (
        Phase(WARM_UP, STEADY_FACTOR, warm_up_seconds),
        Phase(STEADY, STEADY_FACTOR, steady_seconds),
        Phase(BURST, burst, burst_seconds),
        Phase(AFTER, STEADY_FACTOR, steady_seconds),
    )


def overload_phases(
    *,
    burst: float,
    burst_seconds: float,
    steady_seconds: float = 15.0,
    reference_seconds: float = 10.0,
    warm_up_seconds: float = 5.0,
) -> tuple[Phase, ...]:
    return (
        Phase(WARM_UP, STEADY_FACTOR, warm_up_seconds),
        Phase(REFERENCE, STANDARD_BURST, reference_seconds),
        Phase(BETWEEN, STEADY_FACTOR, reference_seconds),
        Phase(BURST, burst, burst_seconds),
        Phase(AFTER, STEADY_FACTOR, steady_seconds),
    )


def starts(phases: Sequence[Phase]) -> list[float]:
    """The second at which each phase begins, and at last the second at which the last one ends."""
    edges = [0.0]
    for phase in phases:
        edges.append(edges[-1] + phase.seconds)
    return edges


def calls(phases: Sequence[Phase], seed: int) -> list[Call]:
    """In the order of their time."""
    chance = Random(seed)
    made: list[Call] = []
    begin = 0.0
    for number, phase in enumerate(phases):
        due = begin + chance.expovariate(phase.factor * NOMINAL_RATE)
        begin += phase.seconds
        while due < begin:
            made.append(draw(chance, due, number))
            due += chance.expovariate(phase.factor * NOMINAL_RATE)
    return made


def mix(seed: int) -> Iterator[Call]:
    """The same calls without times or end, for a closed loop."""
    chance = Random(seed)
    while True:
        yield draw(chance, 0.0, 0)


def draw(chance: Random, due: float, phase: int) -> Call:
    kind = chance.choices(range(len(KINDS)), _RATES)[0]
    return Call(
        due,
        phase,
        kind,
        chance.random() < EMERGENCY_SHARE,
        chance.random() < CHINESE_SHARE,
        chance.randint(*KINDS[kind].prompt_tokens),
        chance.randint(*OUTPUT_TOKENS),
    )


_RATES = [kind.rate for kind in KINDS]
