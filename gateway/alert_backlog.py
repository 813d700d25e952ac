"""What one receiver of alerts has still to be told, and what it believes.

Of several changes of one rule and subject that were not delivered only the newest waits, and only where it differs from what the receiver believes: a rule that
took hold and let go before anybody heard of it is never told of. A receiver believes what it was told last; while a change is on its way, and after a call of which
nobody knows whether it arrived, that is unsure, and the newest change is told whatever it is. So no state is told twice in a row without need, and none is left out.
Bound: `max_waiting` changes. Beyond it goes the one that waits for longest and is not critical, then the one that waits for longest; never one that is on its way.
"""

from __future__ import annotations

from itertools import islice

from gateway.alert_forms import Told
from policies.rule_events import Severity

Key = tuple[str, str]
"""Rule and subject."""
Batch = dict[Key, Told]


class Backlog:
    def __init__(self) -> None:
        self.waiting: Batch = {}
        """What is on its way included, the longest waiting first."""
        self.holding: Batch = {}
        """What holds now of all that this receiver is to hear of."""
        self._believed: set[Key] = set()
        """Holds, as far as the receiver knows."""
        self._unsure: set[Key] = set()
        self._on_the_way: dict[Key, bool] = {}
        """And whether it was unsure before."""

    def note(self, key: Key, told: Told, max_waiting: int) -> int:
        """How many changes had to be given up for it."""
        is_active = told.event.is_active
        if is_active:
            self.holding[key] = told
        else:
            self.holding.pop(key, None)
        self.waiting.pop(key, None)
        if key not in self._unsure and (key in self._believed) is is_active:
            return 0
        self.waiting[key] = told
        return self._cut(max_waiting)

    def take(self, most: int) -> Batch:
        """The next changes to tell; `delivered`, `failed` or `refused` has to follow."""
        return self._begun(dict(islice(self.waiting.items(), most)))

    def repeat(self, keys: list[Key]) -> Batch:
        """What still holds of these, to be told again."""
        return self._begun({key: self.holding[key] for key in keys if key in self.holding})

    def delivered(self, batch: Batch) -> None:
        for key, told in batch.items():
            is_active = told.event.is_active
            self._unsure.discard(key)
            if is_active:
                self._believed.add(key)
            else:
                self._believed.discard(key)
        self._ended(batch)

    def failed(self, batch: Batch, was_sent: bool) -> None:
        """To be tried again. `was_sent`: it may have arrived all the same."""
        if not was_sent:
            self._unsure -= {key for key, was_unsure in self._on_the_way.items() if not was_unsure}
        self._ended(batch)

    def refused(self, batch: Batch) -> int:
        """It will never be taken: how many changes are given up by that."""
        self._unsure -= batch.keys()
        before = len(self.waiting)
        for key, told in batch.items():
            if self.waiting.get(key) is told:
                del self.waiting[key]
        given_up = before - len(self.waiting)
        self._ended(batch)
        return given_up

    def _begun(self, batch: Batch) -> Batch:
        self._on_the_way = {key: key in self._unsure for key in batch}
        self._unsure |= batch.keys()
        return batch

    def _ended(self, batch: Batch) -> None:
        """What became known makes some of what waits superfluous."""
        self._on_the_way = {}
        for key in batch.keys() - self._unsure:
            waits = self.waiting.get(key)
            if waits is not None and waits.event.is_active is (key in self._believed):
                del self.waiting[key]

    def _cut(self, max_waiting: int) -> int:
        count = 0
        while len(self.waiting) > max_waiting:
            free = [key for key in self.waiting if key not in self._on_the_way]
            if not free:
                break
            del self.waiting[next((key for key in free if not self._is_critical(key)), free[0])]
            count += 1
        return count

    def _is_critical(self, key: Key) -> bool:
        return self.waiting[key].event.severity is Severity.CRITICAL
