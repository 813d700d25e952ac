"""The requests the benchmarks send: OpenAI chat calls of a stated size, as ready bytes of HTTP/1.1.

`PLAIN_BODY_BYTES` is the 1.7 KB of the bars: a system prompt, two turns and a question, which is what a customer service call of a
few hundred tokens looks like. The texts differ between the `VARIANTS`, so that no peer can live off one cached body.
"""

from __future__ import annotations

import json
import random

MODEL = "bench-model"
PLAIN_BODY_BYTES = 1_700
VARIANTS = 64
FLOOD_TOKENS = 1_000_000
"""From this `max_tokens` on the mock engine answers as fast as the client reads, for tests of backpressure."""

_WORDS = (
    "account", "balance", "card", "credit", "limit", "statement", "payment", "transfer", "branch", "interest", "rate", "fee",
    "monthly", "annual", "please", "explain", "the", "of", "and", "to", "for", "with", "about", "between", "which", "how", "much",
    "when", "does", "my", "customer", "question", "service", "contract", "insurance", "premium", "fund", "portfolio", "refund",
)  # fmt: skip


def chat_body(
    *, chunks: int = 0, size: int = PLAIN_BODY_BYTES, variant: int = 0, include_usage: bool = False
) -> bytes:
    """A chat body of exactly `size` bytes; with `chunks` it asks for a stream of that many content chunks."""
    words = random.Random(variant)
    body: dict[str, object] = {
        "model": MODEL,
        "messages": [
            {
                "role": "system",
                "content": "You are the assistant of a bank. Answer briefly and name your sources.",
            },
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "The annual fee is waived after twelve payments in one year."},
            {"role": "user", "content": "And if I pay with the second card?"},
        ],
        "temperature": 0.2,
        "max_tokens": chunks or 20,
    }
    if chunks:
        body["stream"] = True
    if include_usage:
        body["stream_options"] = {"include_usage": True}
    missing = size - len(json.dumps(body))
    text = " ".join(words.choices(_WORDS, k=missing // 4 + 1))[: max(0, missing)].ljust(max(0, missing), ".")
    messages = body["messages"]
    assert isinstance(messages, list)
    messages[1]["content"] = text
    return json.dumps(body).encode()


def chat_request(port: int, body: bytes) -> bytes:
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nuser-agent: headrace-bench\r\n"
        f"accept: application/json\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def chat_requests(port: int, *, chunks: int = 0) -> list[bytes]:
    """One request of each variant. Streams differ in length, from a half to one and a half of `chunks`, and have it as their mean:
    were all alike, streams that once ended together, after a hiccup of the machine, would go on ending together.
    """
    lengths = [round(chunks * (0.5 + variant / (VARIANTS - 1))) for variant in range(VARIANTS)]
    order = random.Random(VARIANTS).sample(range(VARIANTS), VARIANTS)
    return [chat_request(port, chat_body(chunks=lengths[variant], variant=variant)) for variant in order]
