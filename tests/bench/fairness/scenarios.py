"""The three situations, and what is judged in each.

- `weights`: two backlogged tenants with weights 2 : 1 get weighted tokens in that ratio.
- `equals`: eight backlogged tenants of equal weight and very different sizes get equal amounts, by Jain's index.
- `neighbour`: a light tenant beside one that calls ten times as often, more than the fleet can answer. The light one's time in the queue, at P99,
  as the gateway says it (a slot has to become free; what an engine takes at full batch is not in it); the fleet's throughput in weighted tokens,
  against the same fleet with the noisy one alone and a fresh gateway. Beside it, for information, what the engines do without a gateway when as
  many clients as a batch has places call each of them.
The light one's wait is mostly the time until any slot becomes free, whoever is preferred: some 190 become free per second here. With fewer, in a smaller
fleet or with longer answers, it grows in proportion, and no order of the queue can shorten it.
All tenants are in the standard lane, without targets. The first `warm_up_seconds` of each load are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from tests.bench.arithmetic import percentile
from tests.bench.fairness.load import Outcome, loaded
from tests.bench.fairness.shares import (
    Answer,
    between,
    jain,
    off_percent,
    waiting_on_average,
    worst,
)
from tests.bench.fairness.stage import BATCH, fleet_running, gateway_running
from tests.bench.fairness.tenants import Shape, Tenant
from tests.bench.slo.bars import Verdict

RATIO = 2.0
RATIO_OFF_PERCENT = 5.0
JAIN = 0.98
LIGHT_QUEUE_MS = 50.0
OF_THROUGHPUT_PERCENT = 95.0
NOT_WAITED_PERCENT = 1.0
"""A tenant of whose answers more had not to wait was not backlogged, and its share says nothing."""
ENGINES_ALONE_SECONDS = 6.0

_USUAL = Shape((100, 300), (12, 28))
_SIZES = {
    "tiny": Shape((60, 140), (6, 14)),
    "short-in-long-out": Shape((60, 140), (120, 200)),
    "long-in-short-out": Shape((1200, 1800), (6, 14)),
    "long-in-long-out": Shape((1200, 1800), (60, 100)),
    "medium": Shape((300, 500), (20, 40)),
    "any": Shape((60, 1200), (6, 120)),
    "short-ends-early": Shape((60, 140), (150, 250), ends_early=True),
    "long-ends-early": Shape((800, 1200), (150, 250), ends_early=True),
}
WEIGHTS = (
    Tenant(name="double", shape=_USUAL, weight=2.0, clients=64),
    Tenant(name="single", shape=_USUAL, weight=1.0, clients=64),
)
EQUALS = tuple(Tenant(name=name, shape=shape, clients=24) for name, shape in _SIZES.items())
LIGHT = Tenant(name="light", shape=_USUAL, rate=25.0)
NOISY = Tenant(name="noisy", shape=_USUAL, rate=250.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant in one load."""

    load: str
    tenant: str
    weight: float
    answers_per_second: float
    tokens_per_second: float
    cost_per_second: float
    refused: int
    """In the whole load."""
    waiting: float
    queue_p50_ms: float | None
    queue_p99_ms: float | None
    """None without answers of a gateway."""


@dataclass(frozen=True, slots=True)
class Times:
    warm_up_seconds: float
    seconds: float

    @property
    def end(self) -> float:
        return self.warm_up_seconds + self.seconds


@dataclass(frozen=True, slots=True)
class Result:
    verdicts: list[Verdict]
    rows: list[Row]


def measured(names: Sequence[str], scratch: Path, times: Times, seed: int) -> Result:
    found = Result([], [])
    with fleet_running(scratch) as engines:
        for name in names:
            result = _SCENARIOS[name](scratch, engines, times, seed)
            found.verdicts.extend(result.verdicts)
            found.rows.extend(result.rows)
    return found


def weights(scratch: Path, engines: Sequence[int], times: Times, seed: int) -> Result:
    outcome = _through_gateway(scratch, engines, WEIGHTS, times, seed)
    return Result(weights_verdicts(outcome, times), rows("weights", outcome, WEIGHTS, times))


def equals(scratch: Path, engines: Sequence[int], times: Times, seed: int) -> Result:
    outcome = _through_gateway(scratch, engines, EQUALS, times, seed)
    return Result(equals_verdicts(outcome, times), rows("equals", outcome, EQUALS, times))


def neighbour(scratch: Path, engines: Sequence[int], times: Times, seed: int) -> Result:
    alone = _through_gateway(scratch, engines, (NOISY,), times, seed)
    both = _through_gateway(scratch, engines, (LIGHT, NOISY), times, seed)
    shown = rows("noisy alone", alone, (NOISY,), times) + rows("neighbour", both, (LIGHT, NOISY), times)
    # One client per place in every batch, and no gateway.
    clients = replace(NOISY, rate=0.0, clients=BATCH)
    shorter = Times(2.0, ENGINES_ALONE_SECONDS)
    direct = uvloop.run(loaded([(port, (clients,)) for port in engines], shorter.end, seed))
    shown += rows("engines alone", direct, (clients,), shorter)
    return Result(neighbour_verdicts(alone, both, times), shown)


_SCENARIOS = {"weights": weights, "equals": equals, "neighbour": neighbour}
NAMES = tuple(_SCENARIOS)


def weights_verdicts(outcome: Outcome, times: Times) -> list[Verdict]:
    names = [one.name for one in WEIGHTS]
    found = worst(
        outcome.answers,
        names,
        times.warm_up_seconds,
        times.end,
        lambda got: off_percent(_ratio(got["double"], got["single"]), RATIO),
    )
    ratio = _ratio(found["double"], found["single"])
    name = f"weights: tokens in the worst 10 s {ratio:.3f} : 1 for {RATIO:g} : 1, off by"
    verdict = Verdict(
        name=name, value=off_percent(ratio, RATIO), bar=RATIO_OFF_PERCENT, unit="%", at_least=False
    )
    return [verdict, *_validity("weights", outcome, names, times)]


def equals_verdicts(outcome: Outcome, times: Times) -> list[Verdict]:
    names = [one.name for one in EQUALS]
    found = worst(
        outcome.answers, names, times.warm_up_seconds, times.end, lambda got: -jain(list(got.values()))
    )
    name = "equals: Jain's index of tokens in the worst 10 s"
    verdict = Verdict(name=name, value=jain(list(found.values())), bar=JAIN, unit="")
    return [verdict, *_validity("equals", outcome, names, times)]


def neighbour_verdicts(alone: Outcome, both: Outcome, times: Times) -> list[Verdict]:
    light = [one.queue_ms for one in _counted(both, times) if one.tenant == LIGHT.name]
    before = sum(one.cost for one in _counted(alone, times))
    beside = sum(one.cost for one in _counted(both, times))
    return [
        Verdict(
            name="neighbour: the light tenant in the queue, P99",
            value=percentile(light, 0.99) if light else float("nan"),
            bar=LIGHT_QUEUE_MS,
            unit="ms",
            at_least=False,
        ),
        Verdict(
            name="neighbour: throughput, of that with the noisy tenant alone",
            value=100 * _ratio(beside, before),
            bar=OF_THROUGHPUT_PERCENT,
        ),
        Verdict(
            name="neighbour: refused calls of the light tenant",
            value=both.refused(LIGHT.name),
            bar=0,
            unit="",
            at_least=False,
        ),
        Verdict(name="neighbour: lost", value=alone.lost() + both.lost(), bar=0, unit="", at_least=False),
    ]


def rows(load: str, outcome: Outcome, tenants: Sequence[Tenant], times: Times) -> list[Row]:
    found = []
    for tenant in tenants:
        answers = [one for one in _counted(outcome, times) if one.tenant == tenant.name]
        waits = [one.queue_ms for one in answers if one.queue_ms >= 0]
        found.append(
            Row(
                load,
                tenant.name,
                tenant.weight,
                len(answers) / times.seconds,
                sum(one.prompt_tokens + one.output_tokens for one in answers) / times.seconds,
                sum(one.cost for one in answers) / times.seconds,
                outcome.refused(tenant.name),
                waiting_on_average(answers, times.seconds),
                percentile(waits, 0.5) if waits else None,
                percentile(waits, 0.99) if waits else None,
            )
        )
    return found


def _validity(scenario: str, outcome: Outcome, names: Sequence[str], times: Times) -> list[Verdict]:
    """Whether all were backlogged, and nobody's answers got lost."""
    answers = _counted(outcome, times)
    at_once = max(
        (
            _ratio(sum(one.queue_ms < 1 for one in own), len(own))
            for name in names
            if (own := [one for one in answers if one.tenant == name])
        ),
        default=1.0,
    )
    return [
        Verdict(
            name=f"{scenario}: answers of a tenant that had not waited",
            value=100 * at_once,
            bar=NOT_WAITED_PERCENT,
            at_least=False,
        ),
        Verdict(
            name=f"{scenario}: refused or lost",
            value=outcome.others.total(),
            bar=0,
            unit="",
            at_least=False,
        ),
    ]


def _through_gateway(
    scratch: Path, engines: Sequence[int], tenants: Sequence[Tenant], times: Times, seed: int
) -> Outcome:
    with gateway_running(scratch, engines, tenants) as port:
        return uvloop.run(loaded([(port, tenants)], times.end, seed))


def _counted(outcome: Outcome, times: Times) -> list[Answer]:
    return between(outcome.answers, times.warm_up_seconds, times.end)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
