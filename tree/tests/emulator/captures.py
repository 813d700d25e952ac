"""What a real vLLM 0.32.0 was asked and what it answered, read from the captured exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.framing import HEAD_END, Headers

CAPTURES = Path(__file__).parents[1] / "fixtures" / "vllm-0.32.0"


@dataclass(frozen=True, slots=True)
class Exchange:
    method: str
    path: str
    headers: Headers
    request: bytes | None
    status: int
    answer: bytes


def captured(name: str) -> Exchange:
    rows = (line.split("\t") for line in (CAPTURES / "index.tsv").read_text().splitlines()[1:])
    row = next(row for row in rows if row[0] == name)
    pairs = (line.partition(": ") for line in row[4].split("; ") if line)
    headers = [(key.encode(), value.encode()) for key, _, value in pairs]
    body = row[5].encode() if len(row) > 5 and row[5] else None
    return Exchange(row[2], row[3], headers, body, int(row[1].split()[1]), captured_answer(name))


def captured_answer(name: str) -> bytes:
    """The body of one captured answer."""
    return (CAPTURES / f"{name}.http").read_bytes().partition(HEAD_END)[2]


def events(stream: bytes) -> list[Any]:
    """The data of each event, decoded but for `[DONE]`."""
    data = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event.strip()]
    return [item.decode() if item == b"[DONE]" else orjson.loads(item) for item in data]


def shape(value: object) -> object:
    """The keys of a decoded answer in their order, all the way down, without its values."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value]
    return value if value == "[DONE]" else "value"
