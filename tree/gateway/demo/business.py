"""The three business types of the load, and their requests.

| type | prompt tokens | peak rate | target | answer tokens |
|---|---|---|---|---|
| credit-card tickets | 320-450 | 600/s | 500 ms | 8-16 |
| wealth-product advice | 150-220 | 1200/s | 300 ms | 6-12 |
| loan approval | 600-800 | 200/s | 1 s | 12-20 |

Prompts, rates and targets are a field report's of a bank; the lengths of the answers are an assumption. About half of the shortest prompt is
a system prompt that all requests of a type share, the rest differs from request to request: so an engine's prefix cache helps as much as
it would with templates, and no more. Lengths are in the emulator's tokens of four ASCII characters. By these lengths the fleet of `fleet` can
answer some 900 requests per second, so the default load of 500 leaves room for one engine to fail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

MODEL = "emulated"
STREAM_SHARE = 0.3
_TOKEN_CHARACTERS = 4
_RING_CHARACTERS = 65_536
_TEMPLATE_TOKENS = 9
"""What the chat template of `gateway.emulator.chat_template` adds around a system and a user message."""

_WORDS = (
    *("account", "customer", "branch", "statement", "amount", "date", "limit", "interest", "rate", "term"),
    *("payment", "reference", "product", "risk", "income", "address", "balance", "period", "document"),
    *("was", "asks", "has", "reports", "wants", "for", "the", "a", "of", "since", "about", "and", "with"),
)


@dataclass(frozen=True, slots=True)
class BusinessType:
    name: str
    chinese_name: str
    peak_rate: float
    """Requests per second."""
    target_ms: int
    prompt_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]
    system: str


TYPES = (
    BusinessType(
        *("credit-card tickets", "信用卡工单", 600, 500, (320, 450), (8, 16)),
        "You sort credit card tickets. Name the cause and the desk. ",
    ),
    BusinessType(
        *("wealth-product advice", "理财产品咨询", 1200, 300, (150, 220), (6, 12)),
        "You answer questions on wealth products. Be brief. ",
    ),
    BusinessType(
        *("loan approval", "贷款审批", 200, 1000, (600, 800), (12, 20)),
        "You check a loan application against the rules below. ",
    ),
)


class RequestBodies:
    """Chat completion bodies of one type, drawn with the caller's generator."""

    def __init__(self, kind: BusinessType, chance: Random) -> None:
        self._chance = chance
        self._kind = kind
        words = " ".join(chance.choices(_WORDS, k=_RING_CHARACTERS // 3))
        self._ring = words[:_RING_CHARACTERS].encode()
        shared_tokens = kind.prompt_tokens[0] // 2
        filler = " ".join(chance.choices(_WORDS, k=shared_tokens * 2))
        system = (kind.system + filler)[: shared_tokens * _TOKEN_CHARACTERS]
        fields = (
            f'{{"model":{json.dumps(MODEL)},"messages":[{{"role":"system","content":{json.dumps(system)}}}'
        )
        self._head = f'{fields},{{"role":"user","content":"'.encode()
        self._other_tokens = shared_tokens + _TEMPLATE_TOKENS

    def draw(self) -> tuple[bytes, bool]:
        """A body, and whether it asks for a stream."""
        chance = self._chance
        shortest, longest = self._kind.prompt_tokens
        size = (chance.randint(shortest, longest) - self._other_tokens) * _TOKEN_CHARACTERS
        start = chance.randrange(_RING_CHARACTERS - size)
        answer = chance.randint(*self._kind.answer_tokens)
        streamed = chance.random() < STREAM_SHARE
        tail = b'"}],"max_tokens":%d%s}' % (answer, b',"stream":true' if streamed else b"")
        return self._head + self._ring[start : start + size] + tail, streamed
