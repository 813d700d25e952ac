"""Every setting of the gateway: name, unit, default and range, as frozen records.

`gateway.configuration` fills these records from a YAML file and `gateway.__main__` from the command line; nothing else makes
them. A field's `at_least` / `at_most` bounds are part of the contract: both loaders refuse a value outside of them and name the
key. A setting exists here only if something reads it and a test fails when it is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


def bounded(default: Any, at_least: float, at_most: float) -> Any:
    """A numeric field with its default and the inclusive range the loaders enforce."""
    return field(default=default, metadata={"at_least": at_least, "at_most": at_most})


class Role(StrEnum):
    """What a pool is tuned for; it cannot be discovered from an engine, so it is configured."""

    HIGH_BATCH = "high-batch"
    LOW_LATENCY = "low-latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The client's side. `port` 0 asks the system for a free one; `cors_origins` empty switches CORS off, `["*"]` allows any."""

    host: str = "127.0.0.1"
    port: int = bounded(8080, 0, 65535)
    max_body_mb: float = bounded(32, 0.001, 4096)
    max_header_kb: float = bounded(64, 1, 1024)
    header_seconds: float = bounded(10, 0.01, 3600)
    """From the first byte of a request (or the connection's opening) to the end of its headers."""
    body_gap_seconds: float = bounded(30, 0.01, 3600)
    """Longest silence inside a request body."""
    stall_seconds: float = bounded(30, 0.01, 3600)
    """How long a client may leave the answer unread before it is cut off."""
    keep_alive_seconds: float = bounded(75, 0, 3600)
    """Idle time of a client's connection; above the 60 s that load balancers keep theirs."""
    drain_seconds: float = bounded(30, 0, 3600)
    """How long running requests may go on after SIGTERM."""
    cors_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """The engine's side, one limit for each way to wait. An answer that keeps coming is bound by `gap_seconds`, not by a total."""

    connect_seconds: float = bounded(2, 0.01, 60)
    first_byte_seconds: float = bounded(600, 0.01, 86400)
    """From the request's last byte to the answer's first data byte; a call that is not streamed spends its whole generation here."""
    gap_seconds: float = bounded(60, 0.01, 86400)
    total_seconds: float = bounded(3600, 0.01, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """Connections to the engines. `idle_seconds` stays below the 5 s after which vLLM and SGLang close an idle connection."""

    max_connections: int = bounded(16384, 1, 65536)
    """Per backend; a request beyond it is answered 503."""
    max_idle_connections: int = bounded(256, 0, 65536)
    idle_seconds: float = bounded(4, 0, 3600)
    resolve_seconds: float = bounded(30, 0, 86400)
    """How long a resolved host name is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Health and model discovery: one GET per backend and interval, on connections of their own."""

    interval_seconds: float = bounded(5, 0.05, 3600)
    timeout_seconds: float = bounded(5, 0.05, 600)
    failures: int = bounded(3, 1, 100)
    """Failed probes in a row that take a backend out; a refused connection takes it out at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Requests waiting for a slot; only pools with a `window` ever make one wait."""

    max_waiting: int = bounded(1024, 0, 1_000_000)
    max_wait_seconds: float = bounded(30, 0, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Second tries, before the first byte of an answer and always on another backend; 0 switches them off."""

    max_retries: int = bounded(2, 0, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`requests` writes one JSON line per request to standard output."""

    requests: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """One engine. `url` is http(s)://host[:port][/prefix] or unix:///path/to.sock; `name` defaults to what `url` shows of the host."""

    url: str
    name: str = ""
    api_key: str = ""
    """Sent as `Authorization: Bearer`, in place of what the client sent."""
    ca_file: str = ""
    """PEM file that verifies this backend's certificate, in place of the system's authorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """Concurrent requests per backend."""

    max: int = bounded(0, 1, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Backends that are alike. Without a `window` the engine's own queue takes whatever comes."""

    name: str
    role: Role = Role.HIGH_BATCH
    window: WindowSettings | None = None
    backends: tuple[BackendSettings, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One whole configuration. `aliases` maps a name that clients may ask for to the model that the engine knows."""

    pools: tuple[PoolSettings, ...]
    server: ServerSettings = field(default_factory=ServerSettings)
    timeouts: TimeoutSettings = field(default_factory=TimeoutSettings)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    retries: RetrySettings = field(default_factory=RetrySettings)
    log: LogSettings = field(default_factory=LogSettings)
    aliases: dict[str, str] = field(default_factory=dict)


def one_pool(urls: tuple[str, ...], server: ServerSettings) -> Settings:
    """The configuration of `headrace serve --backend URL ...`: every backend in one pool, all else at its default."""
    backends = tuple(BackendSettings(url=url) for url in urls)
    return Settings(pools=(PoolSettings(name="default", backends=backends),), server=server)
