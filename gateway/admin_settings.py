"""The settings of `admin`, as those of `gateway.settings`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """Where `/admin/...` and `/metrics` are served, and to whom."""

    host: str = "127.0.0.1"
    """Of the listener of their own; without `port` it is not used."""
    port: int | None = bounded(None, 0, 65535)
    """None: on the clients' listener; 0 asks the system for a free one."""
    key_sha256: tuple[str, ...] = ()
    """Of keys of which one is needed for each of these requests. Without any, nobody is asked, and rules can be forced on a loopback address only."""
