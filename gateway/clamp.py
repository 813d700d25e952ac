"""The most tokens of an answer while degradation rules clamp its lane: the body's own limit is lowered, or one is put in. Never more than a client asked for; every other byte stays.

Which members limit an answer, its API says (`gateway.paths.Route.limits`): one that only another API knows is no limit here, for engines pass over it.
A number that engines read as one counts as one, however it is written (`4096.0`, `"4096"`). `min_tokens` above the limit is lowered with it, for engines refuse one above the other.
"""

from __future__ import annotations

from math import inf
from typing import Any

from gateway.splice import add_member, set_member

_LEAST = "min_tokens"


def clamped(body: bytes, fields: dict[str, Any], limit: int, names: tuple[str, ...]) -> bytes:
    """`fields` is the JSON object that `body` is. Of `names` the first is put in where there is none."""
    text = b"%d" % limit
    given = [name for name in names if fields.get(name) is not None]
    for name in (*given, _LEAST):
        if _number(fields.get(name)) > limit:
            body = set_member(body, name, text, is_known=True)
    if given:
        return body
    name = names[0]
    return set_member(body, name, text, is_known=True) if name in fields else add_member(body, name, text)


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
