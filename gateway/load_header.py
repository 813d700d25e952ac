"""Asks an engine for its load along with a request, and reads it off the answer: vLLM's `endpoint-load-metrics` header.

Asked for: of vLLM, whose window moves (nothing else uses it: the header tells the queue and the KV cache, no sizes), with a chat or text
completion that is not streamed, as vLLM tells it on no other answer; and only where the last word is older than `routing.capacity.FRESH_SECONDS`.
At most four times a second, since the engine goes through all its metrics for it and writes a line into its log.
As text, where each replica of one engine has its entry; in JSON the last one hides the others.
A client that asks for itself gets what it asked for, and nothing is asked beside it; else the header is kept from the client.

Limits: of an engine behind several API servers it is the word of one of them, which may be an old one. Only a good answer carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine_report import LOAD_HEADER, read_load_header
from gateway.paths import Kind
from policies.dialects import Dialect
from routing.backend import Backend
from routing.fleet import Fleet

_FORMAT_NAME = b"endpoint-load-metrics-format:"
ASKING_LINE = _FORMAT_NAME + b" TEXT\r\n"


def asks_load(backend: Backend, kind: Kind, fields: Mapping[str, Any], lines: bytes, now: float) -> bool:
    """Whether `ASKING_LINE` is to be added to `lines`, the client's headers as they go to the engine; `fields` are the body's."""
    return (
        backend.dialect is Dialect.VLLM
        and kind in (Kind.CHAT, Kind.COMPLETION)
        and not fields.get("stream")
        and _FORMAT_NAME not in lines
        and backend.asks_load(now)
    )


def take_load(headers: list[tuple[bytes, bytes]], backend: Backend, fleet: Fleet, now: float) -> None:
    """Out of the headers of an answer that was asked for it."""
    for pair in headers:
        if pair[0] == LOAD_HEADER:
            fleet.mentioned(backend, read_load_header(pair[1]), now)
            headers[:] = [kept for kept in headers if kept[0] != LOAD_HEADER]
            return
