"""Which answers of 500 and above, and which answers broken off, were to be expected.

| what the gateway says | expected |
|---|---|
| `lane_refused`, `cold_path_closed` | always: a rule does what it says |
| reasons in `SHORTAGES`, `no_backend` | while an engine is broken, or `RECOVERY_SECONDS` after; so not in the calm at the end, where a wait that nobody ends would show |
| `session_store_unavailable` | while Redis is away, or `STORE_RECOVERY_SECONDS` after |
| another reason of an engine, its own 5xx, or an answer cut | while that very engine is broken |
| `internal_error`, `shutting_down` | never |

Reloads, clock steps and Redis explain nothing about engines. What is not expected so may still be the machine's, and is counted apart: a process that had no core
(`machine`) is for who waits for it as if it were away.
"""

from __future__ import annotations

from gateway.sessions.guarded_store import WRITE_TIMEOUTS
from policies.store_breaker import BreakerRules
from policies.terms import Refusal
from tests.bench.soak.configuration import STORE_MS
from tests.bench.soak.machine import GATEWAY, REDIS
from tests.bench.soak.trouble import Kind, Spans

RECOVERY_SECONDS = 15.0
"""The longest pause of a circuit in `configuration`, a canary that fails, and the pause after it."""
SLACK_SECONDS = 1.0
"""Between an engine that is well again and what was under way in it."""

STORE_RECOVERY_SECONDS = (
    BreakerRules().max_open_seconds + 2 * WRITE_TIMEOUTS * STORE_MS / 1000 + SLACK_SECONDS
)
"""Within the first two a store that is back is found again. What is lost later was not lost for Redis: so connections that had died with it were found out, one by one."""

SHORTAGES = frozenset(
    {
        Refusal.QUEUE_FULL,
        Refusal.QUEUE_TIMEOUT,
        Refusal.DEADLINE,
        Refusal.OVERLOADED,
        Refusal.STANDING_QUEUE,
        Refusal.NO_BACKEND,
    }
)
_RULES = frozenset({Refusal.LANE_REFUSED, Refusal.COLD_PATH_CLOSED})
_NEVER = frozenset({Refusal.INTERNAL, Refusal.SHUTTING_DOWN})


def is_explained(reason: Refusal | None, backend: str, began: float, ended: float, spans: Spans) -> bool:
    """`reason` is None where the engine itself answered so."""
    if reason in _RULES:
        return True
    if reason in _NEVER:
        return False
    if reason in SHORTAGES:
        return spans.were(Kind.ENGINE, began - RECOVERY_SECONDS, ended)
    if reason is Refusal.SESSION_STORE_UNAVAILABLE:
        return spans.were(Kind.REDIS, began - STORE_RECOVERY_SECONDS, ended)
    return bool(backend) and spans.were(Kind.ENGINE, began - SLACK_SECONDS, ended, backend)


def is_the_machines(reason: Refusal | None, backend: str, began: float, ended: float, spans: Spans) -> bool:
    """Whether the gateway, or who it waited for, had no core meanwhile."""
    if reason in _NEVER:
        return False
    if reason is Refusal.SESSION_STORE_UNAVAILABLE:
        began -= STORE_RECOVERY_SECONDS
        return any(spans.were(Kind.LATE, began, ended, subject) for subject in (GATEWAY, REDIS))
    if reason in SHORTAGES:
        return spans.were(Kind.STARVED, began - RECOVERY_SECONDS, ended)
    return any(
        spans.were(Kind.STARVED, began - SLACK_SECONDS, ended, subject)
        for subject in (GATEWAY, backend)
        if subject
    )
