"""Sessions in the process's own memory: the default. One gateway, gone with it.

Bounds: `max_sessions` windows, as many homes and as many responses, least recently used first to go; and `max_bytes` of turns together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from gateway.sessions.expiring import Expiring
from gateway.sessions.store import (
    NO_WINDOW,
    REMEMBERED_IDS,
    Append,
    Appended,
    Home,
    ResponseOwner,
    Result,
    SessionKey,
    Turn,
    Window,
)
from policies.session_window import TurnSize, WindowRules, fits, leaving


class _Kept:
    """A session's window."""

    __slots__ = ("dropped_tokens", "dropped_turns", "ids", "seq", "size_bytes", "system", "turns")

    def __init__(self) -> None:
        self.seq = 0
        self.system = b""
        self.turns: list[Turn] = []
        self.ids: OrderedDict[str, None] = OrderedDict()
        self.dropped_turns = self.dropped_tokens = 0
        self.size_bytes = 0


class MemoryStore:
    def __init__(
        self, rules: WindowRules, max_sessions: int, max_bytes: int, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self.size_bytes = 0
        self._windows: Expiring[_Kept] = Expiring(max_sessions)
        self._homes: Expiring[Home] = Expiring(max_sessions)
        self._responses: Expiring[ResponseOwner] = Expiring(max_sessions)

        self.configure(rules, max_sessions, max_bytes)

    def configure(self, rules: WindowRules, max_sessions: int, max_bytes: int) -> None:
        """Other bounds hold from the next turn on."""
        self._rules = rules
        self._max_bytes = max_bytes
        self._windows.capacity = self._homes.capacity = self._responses.capacity = max_sessions

    async def window(self, key: SessionKey) -> Window:
        kept = self._live(key)
        if kept is None:
            return NO_WINDOW
        return Window(kept.seq, kept.system, tuple(kept.turns), kept.dropped_turns, kept.dropped_tokens)

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        return [self.take(one) for one in appends]

    async def delete(self, key: SessionKey) -> bool:
        self._homes.pop(key)
        is_live = self._live(key) is not None
        self._forget(self._windows.pop(key))
        return is_live

    async def home(self, key: SessionKey) -> Home | None:
        return self._homes.get(key, self._clock())

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        now = self._clock()
        for key, home, ttl_seconds in homes:
            self._homes.set(key, home, now + ttl_seconds)

    async def response(self, response_id: str) -> ResponseOwner | None:
        return self._responses.get(response_id, self._clock())

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None:
        now = self._clock()
        for response_id, owner, ttl_seconds in responses:
            self._responses.set(response_id, owner, now + ttl_seconds)

    async def ping(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing is open."""

    def _live(self, key: SessionKey) -> _Kept | None:
        kept = self._windows.get(key, self._clock())
        if kept is None:
            self._forget(self._windows.pop(key))
        return kept

    def take(self, append: Append) -> Appended:
        """`append` of one, for who cannot wait."""
        key, turn, ttl_seconds, system, expected_seq = append
        kept = self._live(key)
        seq = 0 if kept is None else kept.seq
        if kept is not None and turn.id in kept.ids:
            return Appended(Result.DUPLICATE, seq, len(kept.turns), sum(one.tokens for one in kept.turns))
        if expected_seq is not None and expected_seq != seq:
            return Appended(Result.CONFLICT, seq)
        rules = self._rules
        if not fits(len(turn.messages), rules) or (system is not None and not fits(len(system), rules)):
            return Appended(Result.TOO_LARGE, seq)
        if kept is None:
            kept = _Kept()
        else:
            self.size_bytes -= kept.size_bytes
        if system is not None:
            kept.system = system
        kept.seq += 1
        kept.turns.append(turn)
        kept.ids[turn.id] = None
        if len(kept.ids) > REMEMBERED_IDS:
            kept.ids.popitem(last=False)
        gone = leaving([TurnSize(one.tokens, len(one.messages), one.follows) for one in kept.turns], rules)
        dropped_tokens = sum(one.tokens for one in kept.turns[:gone])
        del kept.turns[:gone]
        kept.dropped_turns += gone
        kept.dropped_tokens += dropped_tokens
        kept.size_bytes = len(kept.system) + sum(len(one.messages) for one in kept.turns)
        self.size_bytes += kept.size_bytes
        for other in self._windows.set(key, kept, self._clock() + ttl_seconds):
            self._forget(other)
        while self.size_bytes > self._max_bytes and len(self._windows) > 1:
            self._forget(self._windows.pop_oldest())
        tokens = sum(one.tokens for one in kept.turns)
        return Appended(Result.APPENDED, kept.seq, len(kept.turns), tokens, gone, dropped_tokens)

    def _forget(self, kept: _Kept | None) -> None:
        if kept is not None:
            self.size_bytes -= kept.size_bytes
