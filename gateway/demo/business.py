"""The three business types of the load, their requests, and the keys of the clients that the gateway knows.

| type | prompt tokens | peak rate in the field | target to the first byte | answer tokens |
|---|---|---|---|---|
| credit-card tickets | 320-450 | 600/s | 500 ms | 30-60 |
| wealth-product advice | 150-220 | 1200/s | 300 ms | 25-55 |
| loan approval | 600-800 | 200/s | 1 s | 45-75 |

Prompts, rates and targets are a field report's of a bank; the lengths of the answers are an assumption. All answers are streamed. About half of
the shortest prompt is a system prompt that all requests of a type share, the rest differs from request to request: so an engine's prefix cache
helps as much as it would with templates, and no more. Lengths are in the emulator's tokens of four ASCII characters. No request says what type
it is: the gateway finds that in the text, by `keywords`. `EMERGENCY_SHARE` of the requests come from a tenant that may ask for the emergency lane, and do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

MODEL = "emulated"
EMERGENCY_SHARE = 0.02
BANK_A_KEY = "demo-bank-a"
"""May ask for any lane; its headers are believed."""
BANK_B_KEY = "demo-bank-b"
"""An ordinary tenant with half the weight."""
GUEST_KEY = "none"
"""What clients send whose library insists on a key."""
_TOKEN_CHARACTERS = 4
_RING_CHARACTERS = 65_536
_TEMPLATE_TOKENS = 9
"""What the chat template of `gateway.emulator.chat_template` adds around a system and a user message."""

_WORDS = (
    *("account", "customer", "branch", "statement", "amount", "date", "limit", "interest", "rate", "term"),
    *("payment", "reference", "product", "risk", "income", "address", "balance", "period", "document"),
    *("was", "asks", "has", "reports", "wants", "for", "the", "a", "of", "since", "about", "and", "with"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessType:
    id: str
    """In the gateway's configuration and in `x-headrace-route`."""
    name: str
    chinese_name: str
    peak_rate: float
    """Requests per second."""
    target_ms: int
    prompt_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]
    pools: tuple[str, ...]
    """In order of preference."""
    keywords: tuple[str, ...]
    system: str
    opening: str


TYPES = (
    BusinessType(
        id="credit-card",
        name="credit-card tickets",
        chinese_name="信用卡工单",
        peak_rate=600,
        target_ms=500,
        prompt_tokens=(320, 450),
        answer_tokens=(30, 60),
        pools=("high-batch", "low-latency"),
        keywords=("credit card", "信用卡"),
        system="You sort tickets by cause and desk. ",
        opening="My credit card was charged twice. ",
    ),
    BusinessType(
        id="wealth",
        name="wealth-product advice",
        chinese_name="理财产品咨询",
        peak_rate=1200,
        target_ms=300,
        prompt_tokens=(150, 220),
        answer_tokens=(25, 55),
        pools=("low-latency", "high-batch"),
        keywords=("wealth product", "理财产品"),
        system="You answer questions of investors. Be brief. ",
        opening="How safe is this wealth product? ",
    ),
    BusinessType(
        id="loan",
        name="loan approval",
        chinese_name="贷款审批",
        peak_rate=200,
        target_ms=1000,
        prompt_tokens=(600, 800),
        answer_tokens=(45, 75),
        pools=("high-batch", "low-latency"),
        keywords=("loan application", "贷款审批"),
        system="You check a file against the rules below. ",
        opening="Here is one more loan application. ",
    ),
)
FIELD_PEAK = sum(kind.peak_rate for kind in TYPES)


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
        self._head = f'{fields},{{"role":"user","content":"{kind.opening}'.encode()
        self._other_tokens = shared_tokens + _TEMPLATE_TOKENS

    def draw(self) -> bytes:
        chance = self._chance
        shortest, longest = self._kind.prompt_tokens
        size = (chance.randint(shortest, longest) - self._other_tokens) * _TOKEN_CHARACTERS
        size -= len(self._kind.opening)
        start = chance.randrange(_RING_CHARACTERS - size)
        answer = chance.randint(*self._kind.answer_tokens)
        tail = b'"}],"max_tokens":%d,"stream":true}' % answer
        return self._head + self._ring[start : start + size] + tail
