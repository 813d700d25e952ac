"""Which turns of a session stay: the last ones that fit, in order.

A turn is what one request added: the messages that the client sent and the answer to them. Decides, after a turn is put behind the others, how many
leave at the front: while there are more than `max_turns`, or more than `max_tokens` or `max_bytes` together. A turn that `follows` begins with the
results of tools that the turn before it called; it never stays without that turn, so both leave together. The newest turn is the last to leave: one
that alone is above `max_tokens` stays, for the next one would have nothing to go on from; one above `max_entry_bytes` is not taken at all (`fits`).
The system message is no turn: it is kept beside the ring, counts in no bound but that of one entry, and stays.

Settings: `WindowRules`. The Lua script of the Redis store decides the same; one suite holds both to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class WindowRules(NamedTuple):
    """`max_bytes` is of one session's turns together."""

    max_turns: int = 32
    max_tokens: int = 16_384
    max_entry_bytes: int = 256 * 1024
    max_bytes: int = 1024 * 1024


class TurnSize(NamedTuple):
    """What counts of a turn. `tokens` is an estimate where the engine did not count."""

    tokens: int
    size_bytes: int
    follows: bool


def fits(size_bytes: int, rules: WindowRules) -> bool:
    """Whether a turn, or a system message, is taken at all."""
    return size_bytes <= rules.max_entry_bytes


def leaving(turns: Sequence[TurnSize], rules: WindowRules) -> int:
    """How many of these, oldest first, leave at the front. At least the newest stays, even if it follows one that left."""
    count = len(turns)
    tokens = sum(turn.tokens for turn in turns)
    size_bytes = sum(turn.size_bytes for turn in turns)
    gone = 0
    while gone < count - 1 and (
        count - gone > rules.max_turns
        or tokens > rules.max_tokens
        or size_bytes > rules.max_bytes
        or (gone > 0 and turns[gone].follows)
    ):
        tokens -= turns[gone].tokens
        size_bytes -= turns[gone].size_bytes
        gone += 1
    return gone
