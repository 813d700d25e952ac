"""Every request twice: as its client saw it end, and as the gateway's log line says. Each pair has to agree, and each line has to be one request's.

A client that waits has to find exactly one line. One that leaves finds one or none, since what it sent may never have arrived. Pairs are forgotten once they
have met, so that hours cost no memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gateway.record import Outcome
from policies.terms import Refusal
from tests.bench.soak.explain import is_explained, is_the_machines
from tests.bench.soak.trouble import Spans

EXAMPLES = 5


class End(StrEnum):
    """What a client saw."""

    ANSWERED = "answered"
    CUT = "cut"
    """The answer had begun, and broke off or ended with an error."""
    LOST = "lost"
    """The connection went away without a word."""
    HUNG = "hung"
    LEFT = "left"
    """The client did not wait."""


@dataclass(frozen=True, slots=True)
class Fate:
    kind: str
    end: End
    status: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Line:
    status: int
    outcome: Outcome
    reason: Refusal | None
    backend: str
    seen_at: float

    @property
    def is_error(self) -> bool:
        return self.status >= 500 or self.outcome is Outcome.CUT


@dataclass(slots=True)
class Fault:
    """Something that must not be; how often, and the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(example)


class Ledger:
    def __init__(self, spans: Spans, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` hears at once of what must not be."""
        self._spans = spans
        self._tell = tell
        self._fates: dict[str, Fate] = {}
        self._lines: dict[str, Line] = {}
        self.kinds: Counter[str] = Counter()
        self.ends: Counter[End] = Counter()
        self.statuses: Counter[int] = Counter()
        """That clients got."""
        self.outcomes: Counter[Outcome] = Counter()
        self.reasons: Counter[str] = Counter()
        """Of lines, refused or cut."""
        self.errors: Counter[str] = Counter()
        """Explained ones, by reason."""
        self.without_core: Counter[str] = Counter()
        """Those that only the machine explains."""
        self.unexplained = Fault()
        self.disagreeing = Fault()
        self.log_lines_dropped = 0

    def client_saw(self, request_id: str, fate: Fate) -> None:
        self.kinds[fate.kind] += 1
        self.ends[fate.end] += 1
        if fate.status:
            self.statuses[fate.status] += 1
        line = self._lines.pop(request_id, None)
        if line is None:
            self._fates[request_id] = fate
        else:
            self._meet(request_id, fate, line)

    def gateway_wrote(self, text: bytes, seen_at: float) -> None:
        record = json.loads(text)
        if "log_records_dropped" in record:
            self.log_lines_dropped += record["log_records_dropped"]
            return
        line = line_of(record, seen_at)
        self.outcomes[line.outcome] += 1
        if line.reason is not None:
            self.reasons[line.reason] += 1
        request_id = record["request_id"]
        if request_id in self._lines:
            self._found(self.disagreeing, f"{request_id}: two lines")
            return
        fate = self._fates.pop(request_id, None)
        if fate is None:
            self._lines[request_id] = line
        else:
            self._meet(request_id, fate, line)

    @property
    def lines(self) -> int:
        return self.outcomes.total()

    @property
    def without_line(self) -> list[str]:
        """Requests whose clients waited and of which the gateway has not told."""
        return [request_id for request_id, fate in self._fates.items() if fate.end is not End.LEFT]

    @property
    def without_client(self) -> list[str]:
        """Lines of which no client knows."""
        return list(self._lines)

    def _meet(self, request_id: str, fate: Fate, line: Line) -> None:
        if said := disagreement(fate, line):
            self._found(self.disagreeing, f"{request_id} ({fate.kind}): {said}")
        if line.is_error:
            name = line.reason or f"{line.status} of the engine"
            if line.outcome is Outcome.CUT:
                name = f"cut: {line.reason or 'by the engine'}"
            ended = max(fate.ended, line.seen_at)
            if is_explained(line.reason, line.backend, fate.began, ended, self._spans):
                self.errors[name] += 1
            elif is_the_machines(line.reason, line.backend, fate.began, ended, self._spans):
                self.without_core[name] += 1
            else:
                at = f"{line.backend or 'nowhere'}, {fate.began:.2f} to {ended:.2f}"
                after = self._spans.told(fate.began) or "no trouble"
                self._found(self.unexplained, f"{request_id} ({fate.kind}): {name}, {at}, after {after}")

    def _found(self, fault: Fault, example: str) -> None:
        fault.add(example)
        self._tell(example)


def line_of(record: Mapping[str, Any], seen_at: float) -> Line:
    reason = record["reason"]
    return Line(
        status=record["status"],
        outcome=Outcome(record["outcome"]),
        reason=None if reason is None else Refusal(reason),
        backend=record["backend"],
        seen_at=seen_at,
    )


def disagreement(fate: Fate, line: Line) -> str:
    """What is wrong between the two, or nothing."""
    if fate.end is End.LEFT:
        return ""
    allowed = {
        End.ANSWERED: (Outcome.OK, Outcome.REFUSED),
        End.CUT: (Outcome.CUT,),
    }.get(fate.end, ())
    if line.outcome not in allowed:
        return f"{fate.end} for the client, {line.outcome} for the gateway ({line.status}, {line.reason})"
    if fate.status != line.status:
        return f"{fate.status} for the client, {line.status} for the gateway"
    return ""
