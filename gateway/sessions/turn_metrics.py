"""How long the sessions are whose history is kept here, at `/metrics`. No label and no log has an id or a word of what was said.

| name | type | labels | meaning |
|---|---|---|---|
| session_turns_total | counter | result | turns that were to be kept, by what became of them (`TurnResult`) |
| session_tokens_total | counter | what | of turns, `kept` when they were appended and `dropped` when they left a full window |
| session_window_turns | histogram | | turns that a session's window holds once one was appended; their mean is the mean length of a dialogue, weighted by turns |
| sessions_active | gauge | | sessions with a turn within their time to live, of at most 100,000 that this process remembers |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.sessions.store import Append, Appended, Result, SessionKey

_REMEMBERED = 100_000
_TURN_BOUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


class TurnResult(StrEnum):
    APPENDED = "appended"
    CUT = "cut"
    """Appended, with an answer that broke off."""
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    """The engine's answer was compressed, or had no message."""
    UNAVAILABLE = "unavailable"
    """The store did not take it, or was not there to read the window from."""


class TurnMetrics:
    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.windows = self.window_turns = 0
        """Turns that were appended, and the turns that the windows held then, so far."""
        self._active: OrderedDict[SessionKey, float] = OrderedDict()
        """Until when, the one that had a turn last at the end."""
        self._turns = Counter("headrace_session_turns", "Turns to be kept", ("result",), registry=registry)
        self._tokens = Counter("headrace_session_tokens", "Of sessions' turns", ("what",), registry=registry)
        self._window = Histogram(
            "headrace_session_window_turns", "Of a session", registry=registry, buckets=_TURN_BOUNDS
        )
        for result in TurnResult:
            self._turns.labels(result.value)
        for what in ("kept", "dropped"):
            self._tokens.labels(what)
        active = Gauge("headrace_sessions_active", "Sessions with a turn lately", registry=registry)
        active.set_function(lambda: float(self.active()))

    def lost(self, result: TurnResult) -> None:
        """A turn that was not kept."""
        self._turns.labels(result.value).inc()

    def appended(self, append: Append, appended: Appended) -> None:
        if appended.result is not Result.APPENDED:
            self.lost(TurnResult(appended.result.value))
            return
        turn = append.turn
        self._turns.labels((TurnResult.CUT if turn.is_cut else TurnResult.APPENDED).value).inc()
        self._tokens.labels("kept").inc(turn.tokens)
        self._tokens.labels("dropped").inc(appended.dropped_tokens)
        self._window.observe(appended.turns)
        self.windows += 1
        self.window_turns += appended.turns
        self._active[append.key] = self._clock() + append.ttl_seconds
        self._active.move_to_end(append.key)
        if len(self._active) > _REMEMBERED:
            self._active.popitem(last=False)

    def active(self) -> int:
        now = self._clock()
        active = self._active
        while active and next(iter(active.values())) <= now:
            active.popitem(last=False)
        return len(active)
