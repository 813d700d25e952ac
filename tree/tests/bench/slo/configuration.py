"""Headrace's configuration in this benchmark: the fleet's two pools, the three business types, one tenant that may use the emergency lane.

Everything else is at its default, but for the request log, which is off as it is with all others. Clients without a key may call, and are believed nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tests.bench.slo.fleet import Engine
from tests.bench.slo.kinds import KINDS
from tests.bench.slo.requests import API_KEY

_WINDOWS = {
    "high-batch": {"start": 16, "min": 4, "max": 16},
    "low-latency": {"start": 4, "min": 1, "max": 4},
}


def configuration(port: int, engines: Sequence[Engine]) -> dict[str, object]:
    names = list(dict.fromkeys(engine.pool.name for engine in engines))
    return {
        "server": {"host": "127.0.0.1", "port": port},
        "pools": [
            {
                "name": name,
                "role": name,
                "window": _WINDOWS[name],
                "backends": [{"url": engine.url} for engine in engines if engine.pool.name == name],
            }
            for name in names
        ],
        "lanes": {"emergency": {"reserved_per_pool": 2}},
        "business_types": [
            {
                "name": kind.name,
                "latency_target_ms": kind.target_ms,
                "lane": "interactive",
                "pools": list(kind.pools),
                "match": {"keywords": list(kind.keywords)},
            }
            for kind in KINDS
        ],
        "tenants": [
            {
                "name": "bank",
                "key_sha256": [hashlib.sha256(API_KEY.encode()).hexdigest()],
                "max_lane": "emergency",
                "trust_headers": True,
            }
        ],
        "anonymous": {"allow": True, "max_lane": "interactive", "trust_headers": False},
        "log": {"requests": False},
    }
