"""The arithmetic of shares: what a tenant got in a stretch of time, Jain's index, how far a ratio is off.

A tenant's service is counted in the tokens of the `usage` of its answers, at the moment each answer is complete, in the weights that the gateway
charges by (`policies.cost`): with other weights, tenants of different mixes of prompt and output could not all be equal. A stretch of
`STRETCH_SECONDS` is judged at every whole second of the measurement at which one fits, and the worst of them counts. What runs across an end of
the stretch is counted where it ends, so a tenant's figure is uncertain by about one of its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from typing import NamedTuple

from policies.cost import weighted_tokens

STRETCH_SECONDS = 10.0


class Answer(NamedTuple):
    """`at` in seconds since the beginning of the load; `queue_ms` below 0 where no gateway said it."""

    tenant: str
    at: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queue_ms: float

    @property
    def cost(self) -> float:
        return weighted_tokens(self.prompt_tokens, self.cached_tokens, self.output_tokens)


def between(answers: Iterable[Answer], begin: float, end: float) -> list[Answer]:
    return [one for one in answers if begin <= one.at < end]


def cost_by_tenant(answers: Iterable[Answer], tenants: Iterable[str]) -> dict[str, float]:
    """Weighted tokens; 0 for a tenant without an answer."""
    found = dict.fromkeys(tenants, 0.0)
    for one in answers:
        found[one.tenant] += one.cost
    return found


def jain(values: Sequence[float]) -> float:
    """(sum x)^2 / (n * sum x^2): 1 where all are equal, 1/n where one has everything. Source: Jain, Chiu, Hawe 1984."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else nan


def off_percent(ratio: float, wanted: float) -> float:
    return 100.0 * abs(ratio / wanted - 1.0)


def waiting_on_average(answers: Iterable[Answer], seconds: float) -> float:
    """Requests in the queue, by Little's law."""
    return sum(max(one.queue_ms, 0.0) for one in answers) / 1000 / seconds


def worst(
    answers: Sequence[Answer],
    tenants: Sequence[str],
    begin: float,
    end: float,
    badness: Callable[[Mapping[str, float]], float],
) -> dict[str, float]:
    """What the tenants got in the stretch in which that is worst."""
    stretches = []
    start = begin
    while start + STRETCH_SECONDS <= end + 1e-9:
        stretches.append(cost_by_tenant(between(answers, start, start + STRETCH_SECONDS), tenants))
        start += 1.0
    if not stretches:
        raise ValueError(f"{end - begin:g} s hold no stretch of {STRETCH_SECONDS:g} s")
    return max(stretches, key=badness)
