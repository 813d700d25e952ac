"""When which call is made: an open loop, the same for everyone who is measured with the same rate and seed.

| share of the calls | what | tokens of its own |
|---|---|---|
| 25 % | a question under a shared system prompt | 30-150 |
| 25 % | a question on a shared document under its system prompt | 30-150 |
| 30 % | a turn of a session of 3 to 9, under a shared system prompt; each carries all turns before it | 100-600, later turns 100-400 |
| 20 % | a prompt that is never seen again | 300-3000 |

Calls of their own and beginnings of sessions are Poisson arrivals; the next turn follows 2 s + an exponential time of 3 s later. Sessions that began
before the schedule did are in their midst at its beginning, so that the load is the same from its first second on. What an assistant said is as long as
the answers are, but made up beforehand: so a turn never waits for the answer before it, and everybody gets the same prompts.

Phases follow each other without a gap, at one rate. From the phase `SHIFT` on calls and new sessions draw from the second generation of prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import count
from random import Random
from typing import NamedTuple

from tests.bench.cache.catalogue import Catalogue, draw_document, draw_system
from tests.bench.slo.kinds import OUTPUT_TOKENS
from tests.bench.slo.schedule import WARM_UP, Phase, starts

LOAD = 0.75
"""Of what the fleet can do."""
MEASURED, SHIFT, RESTART = "measured", "shift", "restart"
SYSTEM_SHARE, DOCUMENT_SHARE, SESSION_SHARE, ONE_OFF_SHARE = 0.25, 0.25, 0.3, 0.2
QUESTION_TOKENS = (30, 150)
ONE_OFF_TOKENS = (300, 3000)
FIRST_TURN_TOKENS = (100, 600)
TURN_TOKENS = (100, 400)
TURNS = (3, 9)
LEAST_GAP_SECONDS = 2.0
MEAN_FURTHER_GAP_SECONDS = 3.0
LONGEST_SESSION_SECONDS = 120.0
"""A session that began earlier than this before the schedule is over."""
NAMED_SHARE = 2 / 3
"""Of the sessions, whose client sends their name in a header."""
USAGE_SHARE = 0.5
"""Of the calls, whose client asks for the usage at the end of the stream."""


class Kind(IntEnum):
    SYSTEM = 0
    DOCUMENT = 1
    SESSION = 2
    ONE_OFF = 3


class Call(NamedTuple):
    due: float
    """Seconds since the schedule's beginning."""
    phase: int
    kind: Kind
    number: int
    """Names its texts: of a session the same for all its turns."""
    system: int
    """Below 0 for none."""
    document: int
    """Below 0 for none."""
    own_tokens: tuple[int, ...]
    """Of what is the call's own; of a session what the user has said so far, turn by turn."""
    output_tokens: int
    named: bool
    """Whether it names its session."""
    usage: bool


def standard_phases(*, seconds: float = 40.0, warm_up_seconds: float = 15.0) -> tuple[Phase, ...]:
    return (Phase(WARM_UP, LOAD, warm_up_seconds), Phase(MEASURED, LOAD, seconds))


def disturbed_phases(
    *,
    warm_up_seconds: float = 15.0,
    steady_seconds: float = 5.0,
    shift_seconds: float = 20.0,
    restart_seconds: float = 50.0,
) -> tuple[Phase, ...]:
    """The popular prefixes change, and later an engine is replaced by a new one; longer than Headrace's slow start of 30 s."""
    return (
        Phase(WARM_UP, LOAD, warm_up_seconds),
        Phase(MEASURED, LOAD, steady_seconds),
        Phase(SHIFT, LOAD, shift_seconds),
        Phase(RESTART, LOAD, restart_seconds),
    )


def calls(phases: Sequence[Phase], rate: float, seed: int) -> list[Call]:
    """In the order of their time, `rate` per second."""
    edges = starts(phases)
    shifted = next(
        (begin for begin, phase in zip(edges, phases, strict=False) if phase.name == SHIFT), edges[-1]
    )
    draw = _Draw(Random(seed), Catalogue(seed), shifted)
    found = [*draw.single_calls(rate, edges[-1]), *draw.turns(rate, edges[-1])]
    found.sort(key=lambda call: call.due)
    phase = 0
    for place, call in enumerate(found):
        while call.due >= edges[phase + 1]:
            phase += 1
        found[place] = call._replace(phase=phase)
    return found


class _Draw:
    def __init__(self, chance: Random, catalogue: Catalogue, shifted: float) -> None:
        self._chance = chance
        self._documents = catalogue.documents
        self._shifted = shifted
        self._numbers = count()

    def single_calls(self, rate: float, end: float) -> Iterator[Call]:
        kinds = (Kind.SYSTEM, Kind.DOCUMENT, Kind.ONE_OFF)
        chance = self._chance
        for due in self._arrivals(rate * (1 - SESSION_SHARE), 0.0, end):
            kind = chance.choices(kinds, (SYSTEM_SHARE, DOCUMENT_SHARE, ONE_OFF_SHARE))[0]
            system = document = -1
            if kind is Kind.SYSTEM:
                system = draw_system(chance, self._generation(due))
            elif kind is Kind.DOCUMENT:
                document = draw_document(chance, self._generation(due))
                system = self._documents[document].system
            own = chance.randint(*(ONE_OFF_TOKENS if kind is Kind.ONE_OFF else QUESTION_TOKENS))
            yield self._call(due, kind, next(self._numbers), system, document, (own,), named=False)

    def turns(self, rate: float, end: float) -> Iterator[Call]:
        chance = self._chance
        for begin in self._arrivals(rate * SESSION_SHARE * 2 / sum(TURNS), -LONGEST_SESSION_SECONDS, end):
            number, due = next(self._numbers), begin
            system = draw_system(chance, self._generation(begin))
            named = chance.random() < NAMED_SHARE
            own: tuple[int, ...] = ()
            for _ in range(chance.randint(*TURNS)):
                own += (chance.randint(*(TURN_TOKENS if own else FIRST_TURN_TOKENS)),)
                if 0 <= due < end:
                    yield self._call(due, Kind.SESSION, number, system, -1, own, named=named)
                due += LEAST_GAP_SECONDS + chance.expovariate(1 / MEAN_FURTHER_GAP_SECONDS)

    def _arrivals(self, rate: float, begin: float, end: float) -> Iterator[float]:
        due = begin + self._chance.expovariate(rate)
        while due < end:
            yield due
            due += self._chance.expovariate(rate)

    def _generation(self, due: float) -> int:
        return int(due >= self._shifted)

    def _call(
        self,
        due: float,
        kind: Kind,
        number: int,
        system: int,
        document: int,
        own_tokens: tuple[int, ...],
        *,
        named: bool,
    ) -> Call:
        usage = self._chance.random() < USAGE_SHARE
        output_tokens = self._chance.randint(*OUTPUT_TOKENS)
        return Call(due, 0, kind, number, system, document, own_tokens, output_tokens, named, usage)
