"""The calls of a soak, as ready bytes of HTTP/1.1; each names itself in `x-request-id`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.bench.chat_bodies import FLOOD_TOKENS, chat_body, chat_request
from tests.bench.soak.configuration import KEYS, MODEL

SESSIONS = 60
PROMPTS = 400
_FLOOD = chat_body(chunks=FLOOD_TOKENS)
_EMBEDDINGS, _CHAT = "/v1/embeddings", "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Call:
    request_id: str
    kind: str
    data: bytes


KINDS = {
    "chat, streamed": 30,
    "chat, plain": 20,
    "embeddings": 8,
    "session, streamed": 10,
    "session, plain": 10,
    "emergency": 6,
    "unknown model": 2,
    "no JSON": 2,
    "wrong key": 2,
}
"""By weight."""


class Requests:
    def __init__(self, port: int, chance: Random) -> None:
        self._port = port
        self._host = f"host: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        self._chance = chance
        self._made = 0

    def make(self) -> Call:
        kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        self._made += 1
        request_id = f"soak-{self._made}"
        path = _EMBEDDINGS if kind == "embeddings" else _CHAT
        body = b"{no JSON" if kind == "no JSON" else json.dumps(self._fields(kind)).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._host}x-request-id: {request_id}\r\n"
        head += "".join(f"{line}\r\n" for line in self._lines(kind))
        return Call(request_id, kind, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def make_flood(self) -> Call:
        """An answer that comes as fast as it is read, and is more than all buffers on its way hold."""
        self._made += 1
        request_id = f"soak-{self._made}"
        named = f"\r\nx-request-id: {request_id}\r\n\r\n".encode()
        return Call(request_id, "flood", chat_request(self._port, _FLOOD).replace(b"\r\n\r\n", named, 1))

    def _lines(self, kind: str) -> list[str]:
        if kind == "wrong key":
            return ["authorization: Bearer sk-nobody"]
        if kind == "emergency":
            return [f"authorization: Bearer {KEYS['bank-a']}", "x-headrace-lane: emergency"]
        tenant = self._chance.choice(("bank-a", "bank-b", ""))
        lines = [f"authorization: Bearer {KEYS[tenant]}"] if tenant else []
        if kind.startswith("session"):
            # A tenant's sessions are its own, so that few of them meet themselves.
            session = self._chance.randrange(SESSIONS)
            lines += [f"x-headrace-session: s-{session}", "x-headrace-history: server"]
        return lines

    def _fields(self, kind: str) -> dict[str, Any]:
        chance = self._chance
        model = "nobody" if kind == "unknown model" else MODEL
        text = f"{chance.choice(('credit card', 'report', 'question'))} {chance.randrange(PROMPTS)}"
        text += " and what it is about" * chance.choice((2, 10, 60, 250))
        if kind == "embeddings":
            return {"model": model, "input": text}
        return {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": chance.choice((4, 12, 20, 40)),
            "stream": "streamed" in kind,
        }
