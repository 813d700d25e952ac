"""What the backends of one pool have and hold together; `routing.fleet` keeps it true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.gathering import GatheringRules
from policies.pool_choice import PoolRole, PoolTag
from policies.terms import PoolName

if TYPE_CHECKING:
    from routing.backend import Backend


class Pool:
    """`capacity` is the sum of the windows of its usable backends, infinite where one has none; `in_flight` the slots of these in use.

    So a backend that is absent, or holds more than a window that shrank, hides no free slot of another.
    """

    __slots__ = (
        "backends",
        "batch_share",
        "capacity",
        "engine_priority",
        "foreign",
        "gathering",
        "in_flight",
        "in_flight_batch",
        "in_flight_emergency",
        "in_flight_hot",
        "max_tokens",
        "name",
        "open_below",
        "planned_gathering",
        "reserved",
        "reserved_hot",
        "role",
        "tags",
        "usable",
    )

    def __init__(self, name: PoolName) -> None:
        self.name = name
        self.planned_gathering: GatheringRules | None = None
        """As configured."""
        self.gathering: GatheringRules | None = None
        """In use: None while a degradation rule has its requests go one by one."""
        self.tags: frozenset[PoolTag] = frozenset()
        self.engine_priority = False
        self.role = PoolRole.HIGH_BATCH
        self.backends: list[Backend] = []
        self.usable = 0
        """How many of its backends may be used now."""
        self.capacity = 0.0
        self.in_flight = 0
        self.foreign = 0
        """Requests of others at its usable backends, see `routing.capacity`."""
        self.in_flight_emergency = 0
        self.in_flight_batch = 0
        self.in_flight_hot = 0
        self.batch_share = 1.0
        """Of its windows, what batch requests may hold."""
        self.max_tokens = self.reserved = self.reserved_hot = 0.0
        """Of its usable backends' rooms for tokens; infinite, or 0 without rooms, where nothing limits them."""
        self.open_below: tuple[float, float, float] | None = None
        """With less in flight it has a slot for a request that takes long, for a short one, for an emergency; as `routing.slots` works it out after each change."""

    @property
    def is_batch_full(self) -> bool:
        """Whether batch requests hold as much as a degradation rule leaves them."""
        if self.batch_share >= 1.0:
            return False
        return self.in_flight_batch + 1 > max(1.0, self.batch_share * self.capacity)

    @property
    def saturation(self) -> float:
        return self.in_flight / self.capacity if self.capacity else 1.0
