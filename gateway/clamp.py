"""The most tokens of an answer while degradation rules clamp its lane: the body's own limit is lowered, or one is put in. Never more than a client asked for; every other byte stays."""

from __future__ import annotations

from typing import Any

from gateway.splice import add_member, set_member

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def clamped(body: bytes, fields: dict[str, Any], limit: int, is_responses: bool) -> bytes:
    """`fields` is the JSON object that `body` is."""
    given = [name for name in _LIMITS if fields.get(name) is not None]
    for name in given:
        value = fields[name]
        if isinstance(value, int) and not isinstance(value, bool) and value > limit:
            body = set_member(body, name, b"%d" % limit)
    if given:
        return body
    name = "max_output_tokens" if is_responses else "max_tokens"
    text = b"%d" % limit
    return set_member(body, name, text) if name in fields else add_member(body, name, text)
