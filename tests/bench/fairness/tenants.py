"""Who calls: a tenant's key, weight, sizes, and how it keeps calling.

A tenant either has so many `clients` that each call again when they are answered (a closed loop, in which it always has something waiting), or makes
`rate` calls per second, at random times, whatever becomes of the others (an open loop, Poisson).
Prompts are in the emulated engine's tokens (four characters each) and all different. An answer is as long as `max_tokens` says, which the gateway sees;
where a shape `ends_early`, a stop word ends it at random after some 50 tokens, so that what is charged at first has to be put right later.
Lengths differ within a tenant, so that answers of one batch do not all end in the same step, as they would on no real engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from tests.bench.slo.kinds import WORDS

MODEL = "emulated"
STOP_WORD = " water"
"""One of the emulated engine's 54 words."""
_RING_CHARACTERS = 65_536


@dataclass(frozen=True, slots=True)
class Shape:
    prompt_tokens: tuple[int, int]
    max_tokens: tuple[int, int]
    ends_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    shape: Shape
    weight: float = 1.0
    clients: int = 0
    rate: float = 0.0

    @property
    def key(self) -> str:
        return f"sk-fairness-{self.name}"


class Bodies:
    """The requests of one tenant; equal seeds make equal ones."""

    def __init__(self, tenant: Tenant, port: int, chance: Random) -> None:
        self._chance = chance
        self._shape = tenant.shape
        self._ring = " ".join(chance.choices(WORDS, k=_RING_CHARACTERS // 4))[:_RING_CHARACTERS]
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nuser-agent: headrace-bench\r\n"
            f"authorization: Bearer {tenant.key}\r\ncontent-type: application/json\r\ncontent-length: "
        ).encode()

    def make(self) -> bytes:
        """A whole request."""
        chance, shape = self._chance, self._shape
        length = 4 * chance.randint(*shape.prompt_tokens)
        start = chance.randrange(_RING_CHARACTERS - length)
        body: dict[str, object] = {
            "model": MODEL,
            "messages": [{"role": "user", "content": self._ring[start : start + length]}],
            "max_tokens": chance.randint(*shape.max_tokens),
        }
        if shape.ends_early:
            body["stop"] = STOP_WORD
        written = json.dumps(body).encode()
        return b"%b%d\r\n\r\n%b" % (self._head, len(written), written)
