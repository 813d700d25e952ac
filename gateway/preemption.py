"""Running requests that give way to emergencies: who may, when that is looked at, and how an attempt is ended.

    look -> Router.preemption chooses -> Departure.end_attempt -> the attempt's `async with Exchange` is left, which closes the engine's
    connection -> Turnstile.put_back -> the emergency gets the slot, and the request waits for its next one

A request may give way while it has a slot, its client has got nothing of an answer, not even a head, and its body may be sent a second time.
Looked at when an emergency begins to wait and, while one does, at the times that the router names. Sockets never give way.
Setting: `lanes.emergency.preemption`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from math import inf

from gateway.departure import Departure
from routing.decision import Lease
from routing.preemption import Running
from routing.router import Router


class Preemptor:
    def __init__(self, router: Router, live: Collection[Departure]) -> None:
        """`live`: the requests inside, looked at only when somebody has to give way."""
        self._preemption = router.preemption
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """An emergency has to wait, or still does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        holders: dict[Lease, Departure] = {}

        def running() -> Iterator[Running]:
            for departure in self._live:
                attempt = departure.spare_attempt()
                if attempt is not None:
                    lease, _, record = attempt
                    holders[lease] = departure
                    yield Running(lease, record.attempt_at)

        for lease in self._preemption.choose(running, self._loop.time()):
            holders[lease].end_attempt()
        if self._preemption.look_at < inf:
            self._timer = self._loop.call_at(self._preemption.look_at, self.look)
