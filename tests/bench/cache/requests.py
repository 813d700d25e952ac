"""The bytes of a call: a streamed OpenAI chat completion on a keep-alive connection, the same for every contender.

A document stands before the question in the user's message, below its system prompt. Two thirds of the sessions name themselves in `x-headrace-session`.
Texts are ASCII, four characters to a token of the emulated engine, and begin with a name of their own, so that two of them differ from their
first block on.
"""

from __future__ import annotations

import zlib
from functools import cache
from random import Random

from tests.bench.cache.catalogue import Catalogue
from tests.bench.cache.schedule import Call, Kind
from tests.bench.slo.kinds import OUTPUT_TOKENS
from tests.bench.slo.requests import MODEL, filler

_RING_TOKENS = 32_768
_CHARACTERS = 4


class Requests:
    """`seed` decides the texts, and has to be that of the schedule."""

    def __init__(self, port: int, seed: int) -> None:
        self._ring = filler(Random(f"texts {seed}"), _RING_TOKENS, chinese=False)
        self._catalogue = Catalogue(seed)
        self._system = cache(self._written_system)
        self._document = cache(self._written_document)
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nuser-agent: headrace-bench\r\n"
            "accept: text/event-stream\r\ncontent-type: application/json\r\n"
        )

    def make(self, call: Call) -> bytes:
        messages = self._system(call.system) if call.system >= 0 else ""
        if call.kind is Kind.SESSION:
            last = len(call.own_tokens) - 1
            for turn, tokens in enumerate(call.own_tokens):
                messages += _message("user", self._text(f"turn {turn} of {call.number}", tokens))
                if turn < last:
                    said = self._text(f"answer {turn} of {call.number}", OUTPUT_TOKENS[0])
                    messages += _message("assistant", said)
        else:
            document = self._document(call.document) if call.document >= 0 else ""
            messages += _message("user", document + self._text(f"question {call.number}", call.own_tokens[0]))
        options = ',"stream_options":{"include_usage":true}' if call.usage else ""
        body = f'{{"model":"{MODEL}","messages":[{messages[1:]}],"stream":true{options},"max_tokens":{call.output_tokens}}}'
        session = f"x-headrace-session: session-{call.number}\r\n" if call.named else ""
        return f"{self._head}{session}content-length: {len(body)}\r\n\r\n{body}".encode()

    def _written_system(self, number: int) -> str:
        return _message("system", self._text(f"rules {number}", self._catalogue.system_tokens[number]))

    def _written_document(self, number: int) -> str:
        return self._text(f"document {number}", self._catalogue.documents[number].tokens)

    def _text(self, name: str, tokens: int) -> str:
        """Needs no escapes in JSON."""
        length = tokens * _CHARACTERS - len(name) - 1
        start = zlib.crc32(name.encode()) % (len(self._ring) - length)
        return f"{name} {self._ring[start : start + length]}"


def _message(role: str, content: str) -> str:
    return f',{{"role":"{role}","content":"{content}"}}'
