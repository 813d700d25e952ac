"""The whole router in front of one emulated engine, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from gateway.emulator.scheduler import Engine
from gateway.emulator.sequence import Sequence
from gateway.emulator.settings import EngineSettings
from gateway.emulator.tokens import Prompt
from policies.automatic_window import AutomaticWindow
from policies.capacity_tokens import TokenRules
from policies.lengths import TextSize
from policies.terms import BackendId, PoolName, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules

B = BackendId("b")


@dataclass
class Course:
    """What a span of virtual time brought."""

    finished: int = 0
    first_byte_seconds: list[float] = field(default_factory=list)
    """From dispatch."""
    limits: list[float] = field(default_factory=list)
    """Of the prefill, at each first byte."""
    rates: list[float | None] = field(default_factory=list)
    prefilled: int = 0
    prefill_seconds: float = 0.0
    """Of steps that prefilled, and what they did: the engine's own rate."""


class EmulatedFleet:
    """`per_second` Poisson arrivals of prompts as `prompt` draws them; answers of `new_tokens`, a share of them `streamed`."""

    def __init__(
        self,
        engine: EngineSettings,
        tokens: TokenRules | None,
        per_second: float,
        prompt: Callable[[Random], int],
        new_tokens: int = 20,
        streamed: float = 1.0,
        seed: int = 1,
    ) -> None:
        self.router = Router(Rules())
        plan = BackendPlan(B, PoolName("p"), automatic=AutomaticWindow(), tokens=tokens)
        self.router.configure([plan], Rules())
        self.engine: Engine[Lease] = Engine(engine)
        self.per_second = per_second
        self.slowdown = 1.0
        self.now = 0.0
        self.course = Course()
        self._prompt = prompt
        self._new_tokens = new_tokens
        self._streamed = streamed
        self._random = Random(seed)
        self._next_arrival = 0.0
        self._step_ends = inf
        self._step_began = 0.0
        self._sent = 0
        self._sent_at: dict[Lease, float] = {}

    @property
    def backend(self) -> Backend:
        [backend] = self.router.fleet
        return backend

    def run(self, seconds: float) -> Course:
        self.course = course = Course()
        end = self.now + seconds
        while True:
            self.now = min(self._next_arrival, self._step_ends, end)
            if self.now == end:
                return course
            if self.now == self._step_ends:
                self._step()
            else:
                self._next_arrival = self.now + self._random.expovariate(self.per_second)
                self._arrive()
            if self._step_ends == inf:
                self._begin()

    def _arrive(self) -> None:
        tokens = self._prompt(self._random)
        intent = Intent(
            size=TextSize(token_ids=tokens),
            max_tokens=self._new_tokens,
            streamed=self._random.random() < self._streamed,
        )
        decision = self.router.arrive("m", self.now, intent)
        if isinstance(decision, Lease):
            self._send(decision)
        else:
            self._pump()

    def _pump(self) -> None:
        for _, grant in self.router.pump(self.now):
            assert isinstance(grant, Lease)
            self._send(grant)

    def _send(self, lease: Lease) -> None:
        self._sent += 1
        self._sent_at[lease] = self.now
        prompt = Prompt(int(lease.tag.prompt_tokens), [], self._sent)
        self.engine.submit(
            [Sequence(owner=lease, prompt=prompt, new_tokens=self._new_tokens, streamed=True)], self.now
        )

    def _step(self) -> None:
        self._note_prefill()
        step = self.engine.step(self.now, self.slowdown)
        self._went_on(step.seconds)
        for one in step.progressed:
            lease = one.owner
            if lease.tag.streamed and not lease.service_seconds:
                lease.service_seconds = self.now - self._sent_at[lease]
                self.course.first_byte_seconds.append(lease.service_seconds)
                self.router.produced(lease, 1, self.now)
        for one in step.finished:
            lease = one.owner
            sent_at = self._sent_at.pop(lease)
            lease.verdict, lease.usage = Verdict.GOOD, (one.prompt.tokens, one.generated, one.cached_tokens)
            lease.service_seconds = lease.service_seconds or self.now - sent_at
            self.router.finish(lease, self.now)
            self.course.finished += 1
            room = self.backend.room
            if room is not None:
                self.course.limits.append(room.max_prefill_tokens)
                self.course.rates.append(room.prefill_tokens_per_second)
        self._pump()

    def _begin(self) -> None:
        self._went_on(self.engine.step(self.now, self.slowdown).seconds)

    def _went_on(self, seconds: float | None) -> None:
        self._step_began = self.now
        self._step_ends = inf if seconds is None else self.now + seconds

    def _note_prefill(self) -> None:
        chunks = sum(one.chunk for one in self.engine.running)
        if chunks:
            self.course.prefilled += chunks
            self.course.prefill_seconds += self.now - self._step_began
