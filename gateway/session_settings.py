"""The settings of `sessions`, as those of `gateway.settings`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.bounded import bounded


class HistoryUse(StrEnum):
    ON_REQUEST = "on_request"
    """Where a request says `x-headrace-history: server`."""
    OFF = "off"


class ConflictRule(StrEnum):
    """Of two turns of one session that ran at once."""

    ARRIVAL = "arrival"
    """Both stay, in the order in which their answers ended."""
    STRICT = "strict"
    """The second to end is answered 409 and not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What is kept of a session between its requests, and where. Times to live are twice the mean gap between two requests of a session, within their bounds."""

    redis_url: str = ""
    """Where sessions are kept that several gateways share; without it they are in this process, gone with it. `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS, `unix:///path`; `redis+sentinel://host:port,host:port/service`, `redis+cluster://host:port,host:port`,
    and with TLS `rediss+sentinel`, `rediss+cluster`."""
    redis_ca_file: str = ""
    """PEM file that verifies Redis's certificate, in place of the system's authorities."""
    sentinel_password: str = ""
    min_ttl_seconds: float = bounded(30, 1, 86_400)
    max_ttl_seconds: float = bounded(300, 1, 86_400)
    history: HistoryUse = HistoryUse.ON_REQUEST
    history_required: bool = True
    """Whether a request that wants its history is refused (503) while the store is away; else it goes on without."""
    conflicts: ConflictRule = ConflictRule.ARRIVAL
    replay_cut: bool = False
    """Whether an answer that broke off is part of the next prompt."""
    max_turns: int = bounded(32, 1, 10_000)
    """A turn is a request's messages and the answer to them."""
    max_tokens: int = bounded(16_384, 1, 10_000_000)
    max_entry_kb: float = bounded(256, 1, 65_536)
    """Of one turn; a larger one is not kept."""
    max_session_kb: float = bounded(1024, 1, 1_048_576)
    max_sessions: int = bounded(10_000, 1, 10_000_000)
    """In memory; in Redis its own memory limit and the times to live bound them."""
    max_memory_mb: float = bounded(256, 1, 65_536)
    """All turns in memory together."""
    fresh_seconds: float = bounded(5, 0, 86_400)
    """How long a backend remembered here is taken for a session's, without a look into a shared store."""
    timeout_ms: float = bounded(30, 1, 10_000)
    """The longest that a request waits for the store."""
    max_queued_writes: int = bounded(10_000, 1, 10_000_000)
    encryption_keys: tuple[str, ...] = ()
    """32 bytes each in base64. What was said is encrypted with the first before it is stored; the others are still read. `headrace serve` needs the extra `encryption`."""
