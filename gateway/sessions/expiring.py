"""Values that are kept for a time, and of which only so many are kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Expiring(Generic[Value]):
    """The `capacity` most recently set values, each until its time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._values: OrderedDict[str, tuple[Value, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str, now: float) -> Value | None:
        found = self._values.get(key)
        return found[0] if found is not None and found[1] > now else None

    def pop(self, key: str) -> Value | None:
        found = self._values.pop(key, None)
        return None if found is None else found[0]

    def set(self, key: str, value: Value, until: float) -> list[Value]:
        """What had to go for it."""
        self._values[key] = value, until
        self._values.move_to_end(key)
        return [self.pop_oldest() for _ in range(len(self._values) - self.capacity)]

    def pop_oldest(self) -> Value:
        return self._values.popitem(last=False)[1][0]
