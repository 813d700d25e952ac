"""Headrace's configuration in this benchmark, and how soon it has to use an engine again that is well.

Times are short, so that a case takes seconds, and half of what runs may be second tries: of the default's fifth an engine that fails at once, and hence looks idle, can ask for
more before five failures in a row take it out. `SETTINGS` tells them, and the report shows them. Everything else is at its default, but for the request log, which is off as it is
with all others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.configuration import parse
from gateway.settings import Settings
from tests.bench.faults.fleet import POOL
from tests.bench.slo.fleet import Engine

CONNECT_SECONDS = 1.0
FIRST_BYTE_SECONDS = 3.0
GAP_SECONDS = 2.0
PROBE_SECONDS = 1.0
SETTINGS: dict[str, dict[str, Any]] = {
    "timeouts": {
        "connect_seconds": CONNECT_SECONDS,
        "first_byte_seconds": FIRST_BYTE_SECONDS,
        "gap_seconds": GAP_SECONDS,
    },
    "probes": {"interval_seconds": PROBE_SECONDS, "timeout_seconds": PROBE_SECONDS},
    "queue": {"max_wait_seconds": 3},
    "breaker": {
        "open_seconds": 1,
        "max_open_seconds": 4,
        "canary_timeout_seconds": 1,
        "slow_seconds": 10,
        "slow_start_seconds": 3,
    },
}


def configuration(port: int, engines: Sequence[Engine]) -> dict[str, object]:
    return {
        "server": {"host": "127.0.0.1", "port": port},
        "pools": [{"name": POOL.name, "window": {}, "backends": [{"url": engine.url} for engine in engines]}],
        "log": {"requests": False},
        **SETTINGS,
    }


def settings() -> Settings:
    return parse(json.dumps(configuration(8080, [Engine(POOL, 8001)])), "faults", {})


def recovery_bound_seconds(found: Settings, good_canaries: int, answer_seconds: float) -> float:
    """From the end of a fault until its engine has its share again, at most.

    In the worst case a canary was sent just before the end and times out, the longest pause follows, then so many good canaries one after another,
    and the whole of the slow start; meanwhile health is known after one more probe.
    """
    breaker, probes = found.breaker, found.probes
    circuit = (
        breaker.canary_timeout_seconds
        + breaker.max_open_seconds
        + good_canaries * answer_seconds
        + breaker.slow_start_seconds
    )
    return circuit + probes.interval_seconds + probes.timeout_seconds


def described() -> str:
    """For the report."""
    return ", ".join(
        f"{section}.{name} {value:g}"
        for section, values in SETTINGS.items()
        for name, value in values.items()
    )
