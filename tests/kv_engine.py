"""An engine whose KV cache is what runs out, in virtual time, one step after the other.

Each step gives every running request one token; a step takes `base_seconds + slope_seconds * batch`, and for each prompt token that enters
`prefill_seconds` more. A request holds its prompt and what it has generated. Waiting requests enter in order of arrival while their tokens fit; where a
step's tokens do not, the request that entered last is pre-empted: it loses its place and is computed anew, as vLLM does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(eq=False)
class Generation:
    prompt: int
    output: int
    done: int = 0


class KvEngine:
    def __init__(
        self,
        kv_tokens: int,
        base_seconds: float = 0.02,
        slope_seconds: float = 0.0005,
        prefill_seconds: float = 0.0002,
    ) -> None:
        self.kv_tokens = kv_tokens
        self.preemptions = 0
        self._base_seconds = base_seconds
        self._slope_seconds = slope_seconds
        self._prefill_seconds = prefill_seconds
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []

    def submit(self, request: Generation) -> None:
        self._waiting.append(request)

    def used(self) -> int:
        return sum(one.prompt + one.done for one in self._running)

    def step(self) -> tuple[float, list[Generation]]:
        """Seconds that it took, and who ended."""
        entered = 0
        while self._waiting:
            first = self._waiting[0]
            if self._running and self.used() + first.prompt + first.done > self.kv_tokens:
                break
            self._running.append(self._waiting.popleft())
            entered += first.prompt + first.done
        while self.used() + len(self._running) > self.kv_tokens and len(self._running) > 1:
            victim = self._running.pop()
            self.preemptions += 1
            self._waiting.appendleft(victim)
        for one in self._running:
            one.done += 1
        ended = [one for one in self._running if one.done >= one.output]
        self._running = [one for one in self._running if one.done < one.output]
        batch = len(self._running) + len(ended)
        return self._base_seconds + self._slope_seconds * batch + self._prefill_seconds * entered, ended
