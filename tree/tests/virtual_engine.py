"""An engine of continuous batching in virtual time, and a gateway's window in front of it.

A request that is admitted stays `base_seconds + slope_seconds * batch`, times `slowness` and a log-normal spread of mean 1; `batch` counts itself.
At most `max_num_seqs` run, the rest wait in order of arrival: a full window beyond that only moves the queue into the engine.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf
from random import Random

from policies.windows import Window, WindowRules, reported, sampled, started


class VirtualEngine:
    def __init__(
        self,
        base_seconds: float = 0.110,
        slope_seconds: float = 0.00525,
        max_num_seqs: int = 16,
        spread: float = 0.2,
        seed: int = 1,
    ) -> None:
        self.base_seconds = base_seconds
        self.slope_seconds = slope_seconds
        self.max_num_seqs = max_num_seqs
        self.slowness = 1.0
        self._spread = spread
        self._random = Random(seed)
        self._waiting: deque[float] = deque()
        self._running: list[tuple[float, float]] = []

    def saturation_per_second(self) -> float:
        return (
            self.max_num_seqs / (self.base_seconds + self.slope_seconds * self.max_num_seqs) / self.slowness
        )

    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting)

    def waiting(self) -> int:
        return len(self._waiting)

    def next_finish(self) -> float:
        return self._running[0][0] if self._running else inf

    def submit(self, now: float) -> None:
        self._waiting.append(now)
        self._admit(now)

    def finish(self) -> float:
        """Ends the request that is due first; its seconds in the engine."""
        now, sent = heappop(self._running)
        self._admit(now)
        return now - sent

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._running) < self.max_num_seqs:
            seconds = self.slowness * (self.base_seconds + self.slope_seconds * (len(self._running) + 1))
            spread = self._random.lognormvariate(-(self._spread**2) / 2, self._spread)
            heappush(self._running, (now + seconds * spread, self._waiting.popleft()))


class Simulation:
    """One engine behind one window. `rate` is of Poisson arrivals per second; infinite keeps a backlog that always fills the window."""

    def __init__(
        self, engine: VirtualEngine, rules: WindowRules, rate: float = inf, polls: bool = False, seed: int = 2
    ) -> None:
        self.engine = engine
        self.window: Window = started(rules)
        self.now = 0.0
        self.rate = rate
        self._rules = rules
        self._polls = polls
        self._next_poll = 0.25 if polls else inf
        self._random = Random(seed)
        self._backlog = 0
        self._next_arrival = inf

    def run(self, seconds: float) -> tuple[float, list[float]]:
        """Finished requests per second of this time, and the limit at each of its whole seconds."""
        end, tick, finished = self.now + seconds, self.now + 1.0, 0
        limits: list[float] = []
        self._next_arrival = self.now + self._gap() if self.rate < inf else inf
        while True:
            self._dispatch()
            self.now = min(self.engine.next_finish(), self._next_arrival, self._next_poll, tick)
            if self.now == tick:
                limits.append(self.window.limit)
                tick += 1.0
                if self.now >= end:
                    return finished / seconds, limits
            elif self.now == self._next_poll:
                self._next_poll += 0.25
                self.window = reported(self.window, self.engine.waiting(), None, self.now, self._rules)
            elif self.now == self._next_arrival:
                self._next_arrival += self._gap()
                self._backlog += 1
            else:
                in_flight = self.engine.in_flight()
                service_seconds = self.engine.finish()
                finished += 1
                self.window = sampled(self.window, service_seconds, in_flight, self.now, self._rules)

    def _gap(self) -> float:
        return self._random.expovariate(self.rate) if self.rate > 0 else inf

    def _dispatch(self) -> None:
        while (self._backlog > 0 or self.rate == inf) and self.engine.in_flight() < int(self.window.limit):
            self._backlog -= self.rate < inf
            self.engine.submit(self.now)
