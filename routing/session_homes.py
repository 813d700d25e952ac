"""To which backend each session went last, and how long sessions pause.

An exact LRU of `capacity` sessions with a lifetime (`policies.cache_lifetime`), which their own gaps teach; prefixes live as long.
Keys are 64-bit hashes: the ids themselves are not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from policies.cache_lifetime import LifetimeRules, after_gap, lifetime_seconds


class SessionHomes:
    def __init__(self, capacity: int, rules: LifetimeRules) -> None:
        self.capacity = capacity
        self._sessions: OrderedDict[int, tuple[int, float, bool]] = OrderedDict()
        """Home, when it was used or learnt, and whether this gateway itself sent the session there."""
        self._hot: set[int] = set()
        """Those of them that were busy when they came last."""
        self.mean_gap_seconds: float | None = None
        self.configure(rules)

    def configure(self, rules: LifetimeRules) -> None:
        self._rules = rules
        self.lifetime_seconds = lifetime_seconds(self.mean_gap_seconds, rules)

    def __len__(self) -> int:
        return len(self._sessions)

    def home(self, session: int, now: float) -> int:
        """A number of `routing.homes`, 0 where nothing is known."""
        found = self._sessions.get(session)
        return 0 if found is None or now - found[1] > self.lifetime_seconds else found[0]

    def known_for(self, session: int, now: float) -> float:
        """Seconds since it was last sent somewhere from here, or learnt; infinite where nothing is known."""
        found = self._sessions.get(session)
        return inf if found is None else now - found[1]

    def learnt(self, session: int, home: int, now: float) -> None:
        """From another gateway. Teaches nothing of gaps."""
        self._put(session, home, now, False)

    def was_hot(self, session: int) -> bool:
        return session in self._hot

    def mark(self, session: int, is_hot: bool) -> None:
        """Only of a session that is known: so there are never more marks than sessions."""
        if not is_hot:
            self._hot.discard(session)
        elif session in self._sessions:
            self._hot.add(session)

    def sent(self, session: int, home: int, now: float, *, is_moved: bool = False) -> None:
        """`is_moved`: the same request once more, which teaches nothing of gaps."""
        before = self._put(session, home, now, True)
        if before is not None and before[2] and not is_moved:
            self.mean_gap_seconds = after_gap(self.mean_gap_seconds, now - before[1], self._rules)
            self.lifetime_seconds = lifetime_seconds(self.mean_gap_seconds, self._rules)

    def _put(self, session: int, home: int, now: float, is_ours: bool) -> tuple[int, float, bool] | None:
        """What was there before."""
        before = self._sessions.pop(session, None)
        if before is None and len(self._sessions) >= self.capacity:
            self._hot.discard(self._sessions.popitem(last=False)[0])
        self._sessions[session] = home, now, is_ours
        return before
