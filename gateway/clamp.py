"""The most tokens of an answer while degradation rules clamp its lane: the body's own limit is lowered, or one is put in. Never more than a client asked for; every other byte stays.

A number that engines read as one counts as one, however it is written (`4096.0`, `"4096"`). `min_tokens` above the limit is lowered with it, for engines refuse one above the other.
"""

from __future__ import annotations

from math import inf
from typing import Any

from gateway.splice import add_member, set_member

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_LEAST = "min_tokens"


def clamped(body: bytes, fields: dict[str, Any], limit: int, is_responses: bool) -> bytes:
    """`fields` is the JSON object that `body` is."""
    text = b"%d" % limit
    given = [name for name in _LIMITS if fields.get(name) is not None]
    for name in (*given, _LEAST):
        if _number(fields.get(name)) > limit:
            body = set_member(body, name, text)
    if given:
        return body
    name = "max_output_tokens" if is_responses else "max_tokens"
    return set_member(body, name, text) if name in fields else add_member(body, name, text)


def _number(value: Any) -> float:
    """0 of what is none: the engine's to refuse."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        return float(value)
    except ValueError:
        return 0.0
    except OverflowError:
        return inf
