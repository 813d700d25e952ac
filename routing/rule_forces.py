"""What operators have forced on or off, until when, and the trail of who did what. A force ends at the first look after its time.

State: one force per rule and subject, and one per rule for all its subjects that have none of their own; the last `MAX_AUDITED` entries of the trail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import NamedTuple

MAX_AUDITED = 256


class Force(NamedTuple):
    is_on: bool
    until: float
    by: str


class Audited(NamedTuple):
    """`subject` None is all of them; `what` is on, off, released or expired; `until` is set where something was forced."""

    at: float
    rule: str
    subject: str | None
    what: str
    by: str
    until: float | None = None


class RuleForces:
    def __init__(self) -> None:
        self._forces: dict[tuple[str, str | None], Force] = {}
        self.trail: deque[Audited] = deque(maxlen=MAX_AUDITED)
        self.audited = 0
        """Entries that the trail ever had."""

    def of(self, rule: str, subject: str) -> Force | None:
        if not self._forces:
            return None
        return self._forces.get((rule, subject)) or self._forces.get((rule, None))

    def has(self, rule: str, subject: str | None) -> bool:
        """Whether `release` would take anything back."""
        return any(key[0] == rule if subject is None else key == (rule, subject) for key in self._forces)

    def put(self, rule: str, subject: str | None, force: Force, now: float) -> None:
        if subject is None:
            self._drop(rule)
        self._forces[rule, subject] = force
        what = "on" if force.is_on else "off"
        self._note(Audited(now, rule, subject, what, force.by, force.until))

    def release(self, rule: str, subject: str | None, by: str, now: float) -> None:
        """Of all subjects where none is named."""
        if subject is None:
            self._drop(rule)
        else:
            self._forces.pop((rule, subject), None)
        self._note(Audited(now, rule, subject, "released", by))

    def expire(self, now: float) -> bool:
        """Whether one has."""
        before = self.audited
        for (rule, subject), force in list(self._forces.items()):
            if now >= force.until:
                del self._forces[rule, subject]
                self._note(Audited(now, rule, subject, "expired", force.by))
        return self.audited > before

    def keep_only(self, rules: Container[str], subjects: Container[tuple[str, str]], now: float) -> None:
        """A rule or a subject that a configuration no longer has takes its force with it."""
        for (rule, subject), force in list(self._forces.items()):
            if rule not in rules or (subject is not None and (rule, subject) not in subjects):
                del self._forces[rule, subject]
                self._note(Audited(now, rule, subject, "released", force.by))

    def _note(self, entry: Audited) -> None:
        self.audited += 1
        self.trail.append(entry)

    def _drop(self, rule: str) -> None:
        for key in [key for key in self._forces if key[0] == rule]:
            del self._forces[key]
