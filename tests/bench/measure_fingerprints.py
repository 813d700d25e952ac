"""What the fingerprints of one prompt's beginnings cost, in microseconds of CPU, for prompts as clients send them.

Drives `gateway.prompt_prefix.prompt_prefix` alone, with decoded bodies and their sizes, as the gateway has them by then. In a process of its own, for the
reasons of `measure_decisions`; the prompts take turns.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import orjson

from gateway.message_texts import message_texts
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix
from gateway.server import COLLECTOR_THRESHOLDS
from gateway.text_size import text_size
from tests.bench import figures
from tests.bench.children import ROOT
from tests.bench.figures import Figure
from tests.bench.json_child import tell
from tests.bench.peers import BENCH_HOME
from tests.bench.release_python import release_python

OPERATIONS = 500
_MODEL = "model"


@dataclass(frozen=True)
class _Prompt:
    name: str
    chars: int
    messages: int
    bar: float
    has_parts: bool = False
    has_calls: bool = False
    """Of four messages the third is a call of a function, the fourth its result."""

    def fields(self) -> dict[str, Any]:
        """As the decoder leaves it: its strings are nowhere else."""
        drawn = random.Random(self.chars + self.messages)
        words = ["".join(drawn.choices("abcdefghij", k=drawn.randint(1, 9))) for _ in range(1000)]
        messages: list[dict[str, Any]] = []
        for number in range(self.messages):
            text = " ".join(drawn.choices(words, k=self.chars // self.messages))[
                : self.chars // self.messages
            ]
            content = [{"type": "text", "text": text}] if self.has_parts else text
            message: dict[str, Any] = {"role": ("user", "assistant")[number % 2], "content": content}
            if self.has_calls and number % 4 == 2:
                function = {"name": "look_up", "arguments": text}
                call = {"id": f"call_{number}", "type": "function", "function": function}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            elif self.has_calls and number % 4 == 3:
                message = {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text}
            messages.append(message)
        fields: dict[str, Any] = orjson.loads(orjson.dumps({"model": _MODEL, "messages": messages}))
        return fields


_SHORT, _LONG = figures.FINGERPRINTS_US, figures.LONG_FINGERPRINTS_US
_PROMPTS = (
    _Prompt("8 KB in one message", 8_192, 1, _SHORT),
    _Prompt("8 KB in 4 messages of a text part", 8_192, 4, _SHORT, has_parts=True),
    _Prompt("8 KB in 40 messages", 8_192, 40, _SHORT),
    _Prompt("8 KB in 40 messages, half calls and results", 8_192, 40, _SHORT, has_calls=True),
    _Prompt("500 KB in one message", 500_000, 1, _LONG),
    _Prompt("500 KB in 2,000 messages", 500_000, 2_000, _LONG),
    _Prompt("500 KB in 2,000 messages of a text part", 500_000, 2_000, _LONG, has_parts=True),
    _Prompt("500 KB in 2,000 messages, half calls and results", 500_000, 2_000, _LONG, has_calls=True),
)


def measure_fingerprints(*, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    argv = [release_python(BENCH_HOME)[0], "-m", "tests.bench.measure_fingerprints", str(rounds)]
    output = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=600).stdout
    found = []
    for prompt, costs in zip(_PROMPTS, json.loads(output), strict=True):
        progress(f"fingerprints, {prompt.name}: {median(costs):.1f} us")
        found.append(
            Figure(
                topic="Fingerprints",
                name=prompt.name,
                value=median(costs),
                unit="us/request",
                bar=prompt.bar,
                detail=f"{min(costs):.1f} us in the best of {rounds} rounds",
                rounds=tuple(costs),
            )
        )
    return found


def _costs(rounds: int) -> list[list[float]]:
    """Of each of `_PROMPTS` in each round."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    bodies = [prompt.fields() for prompt in _PROMPTS]
    for fields in bodies:
        _microseconds(fields)
    by_round = [[_microseconds(fields) for fields in bodies] for _ in range(rounds)]
    return [list(costs) for costs in zip(*by_round, strict=True)]


def _microseconds(fields: dict[str, Any]) -> float:
    texts = message_texts(Kind.CHAT, fields)
    size = text_size(Kind.CHAT, fields, texts)
    gc.collect()
    begin = time.process_time()
    for _ in range(OPERATIONS):
        prompt_prefix(Kind.CHAT, fields, _MODEL, size, texts)
    return (time.process_time() - begin) / OPERATIONS * 1e6


if __name__ == "__main__":
    tell(_costs(int(sys.argv[1])))
