"""The calls of a case: Poisson arrivals, every second one streamed, prompts of all sizes that have nothing in common; each says its number, for the fleet to note.

Sizes differ because the breaker wants failures of two clients or prompts before it blames an engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.bench.faults.cases import Phase
from tests.bench.faults.fleet import MOST_PER_SECOND, OUTPUT_TOKENS
from tests.bench.slo.requests import MODEL

_WORDS = (20, 200)


class Call(NamedTuple):
    due: float
    number: int
    streamed: bool
    words: int


def schedule(phases: Sequence[Phase], seed: int) -> list[Call]:
    chance = Random(f"faults {seed}")
    calls: list[Call] = []
    begin = 0.0
    for phase in phases:
        rate = phase.load * MOST_PER_SECOND
        due = begin + chance.expovariate(rate)
        while due < begin + phase.seconds:
            calls.append(Call(due, len(calls), chance.random() < 0.5, chance.randint(*_WORDS)))
            due += chance.expovariate(rate)
        begin += phase.seconds
    return calls


class Requests:
    def __init__(self, port: int) -> None:
        self._head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"

    def make(self, call: Call) -> bytes:
        text = f"call-{call.number} begins and goes on" + " about it" * call.words
        body = json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": OUTPUT_TOKENS,
                "stream": call.streamed,
            }
        )
        return f"{self._head}content-length: {len(body)}\r\n\r\n{body}".encode()
