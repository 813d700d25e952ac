"""`headrace check FILE`: says whether a configuration can be used, and what would run.

Faults go to standard error, one a line, with exit code 2; otherwise a summary goes to standard output, with exit code 0, and to standard error
a warning where /metrics and /admin are open to other hosts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gateway.admin import warning
from gateway.configuration import ConfigurationError, backend_name, load
from gateway.sessions.redis_url import RedisAddress
from gateway.settings import Settings, WindowSettings


def check_command(path: str, environment: Mapping[str, str]) -> int:
    """The exit code of the command."""
    try:
        settings = load(path, environment)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(summary(settings))
    problem = warning(settings)
    if problem is not None:
        sys.stderr.write(f"warning: {problem}\n")
    return 0


def summary(settings: Settings) -> str:
    """What would run, a few lines. URLs are safe to show: one that could hold a password does not get this far."""
    server = settings.server
    host = f"[{server.host}]" if ":" in server.host else server.host
    lines = ["valid", f"listens on {host}:{server.port or '(any free port)'}"]
    lines.append(_admin(settings))
    for pool in settings.pools:
        window = f"{_window(pool.window)} per backend" if pool.window else "no window"
        lines.append(f"pool {pool.name}: role {pool.role}, {window}, {len(pool.backends)} backend(s)")
        lines += [f"  {backend_name(backend)}: {backend.url}" for backend in pool.backends]
    for business in settings.business_types:
        target = "no target" if business.latency_target_ms is None else f"{business.latency_target_ms:g} ms"
        lines.append(f"business type {business.name}: {target}, lane {business.lane or 'of the tenant'}")
    if settings.classifier.file:
        lines.append(
            f"classifier {settings.classifier.file}: from confidence {settings.classifier.min_confidence:g}"
        )
    lines += [
        f"tenant {one.name}: {len(one.key_sha256)} key(s), up to {one.max_lane}" for one in settings.tenants
    ]
    anonymous = settings.anonymous
    rest = f"are allowed, up to {anonymous.max_lane}" if anonymous.allow else "are refused"
    lines.append(f"clients without a key {rest}")
    sessions = settings.sessions
    where = f"in Redis ({RedisAddress(sessions.redis_url).kind})" if sessions.redis_url else "in this process"
    lines.append(f"sessions {where}, history {sessions.history.replace('_', ' ')}")
    lines.append(f"{len(settings.aliases)} alias(es)")
    return "\n".join(lines) + "\n"


def _admin(settings: Settings) -> str:
    admin = settings.admin
    host = f"[{admin.host}]" if ":" in admin.host else admin.host
    where = (
        "where clients are served" if admin.port is None else f"on {host}:{admin.port or '(any free port)'}"
    )
    return f"/metrics and /admin {where}, {f'with one of {len(admin.key_sha256)} key(s)' if admin.key_sha256 else 'without a key'}"


def _window(window: WindowSettings) -> str:
    lowest = window.max if window.min is None else window.min
    bounds = f"{window.max}" if lowest == window.max else f"{lowest} to {window.max}"
    said = ["automatic window" if window.max is None else f"window {bounds}"]
    if window.max_tokens is not None:
        said.append(f"{window.max_tokens} tokens")
    if window.max_prefill_tokens is not None:
        said.append(f"{window.max_prefill_tokens} tokens of prefill")
    elif window.max is None:
        said.append(f"{window.prefill_seconds:g} s of prefill")
    return " and ".join(said)
