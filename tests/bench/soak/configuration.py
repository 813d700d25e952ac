"""The gateway of a soak: two pools, tenants, business types, sessions in Redis; every wait short, every table small, so that minutes are enough to fill and empty them.

Three files: `whole`, `smaller` (an engine and a business type less, other windows and weights), and `bad`, of which nothing may be taken over.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

MODEL = "emulated"
KEYS = {"bank-a": "sk-soak-a", "bank-b": "sk-soak-b"}
PATIENCE_SECONDS = 60.0
"""Of a client; more than the gateway may take for anything."""

STORE_MS = 200
"""More than the default: a Redis that waits for a core of a busy machine is not away."""

LIMITS: Mapping[str, Mapping[str, Any]] = {
    "timeouts": {"connect_seconds": 1, "first_byte_seconds": 6, "gap_seconds": 2, "total_seconds": 20},
    "probes": {"interval_seconds": 1, "timeout_seconds": 1, "load_seconds": 0.5},
    "breaker": {
        "open_seconds": 0.5,
        "max_open_seconds": 4,
        "canary_timeout_seconds": 2,
        "slow_start_seconds": 3,
    },
    "queue": {"max_waiting": 64, "max_waiting_per_flow": 32, "max_wait_seconds": 5},
    "affinity": {"max_prefixes": 1024, "min_ttl_seconds": 5, "max_ttl_seconds": 20},
    "paths": {"window_seconds": 20},
    "monitoring": {"primary_seconds": 10, "business_seconds": 20, "cost_seconds": 60},
}


def files(port: int, redis_url: str, engines: Sequence[tuple[str, int]], flood_port: int) -> dict[str, str]:
    """Text by name; of `engines`, name and port, the first half is one pool and the rest another; a third has the engine of floods."""
    half = len(engines) // 2
    whole: dict[str, Any] = {
        "server": {
            "host": "127.0.0.1",
            "port": port,
            "header_seconds": 3,
            "body_gap_seconds": 2,
            "stall_seconds": 3,
            "keep_alive_seconds": 5,
        },
        "pools": [
            {
                "name": "high-batch",
                "window": {"max": 12},
                "batching": {"min": 2, "max": 6, "gather_ms": 20},
                "backends": [_backend(*engine) for engine in engines[:half]],
            },
            {
                "name": "low-latency",
                "role": "low-latency",
                "window": {"max": 6, "max_tokens": 30_000, "max_prefill_tokens": 16_000},
                "backends": [_backend(*engine) for engine in engines[half:]],
            },
            {"name": "flood", "window": {"max": 8}, "backends": [_backend("flood", flood_port)]},
        ],
        "business_types": [
            {
                "name": "credit-card",
                "latency_target_ms": 800,
                "lane": "interactive",
                "match": {"keywords": ["credit card"]},
            },
            {"name": "report", "lane": "batch", "match": {"keywords": ["report"]}},
        ],
        "tenants": [
            {
                "name": "bank-a",
                "key_sha256": [_digest(KEYS["bank-a"])],
                "weight": 2,
                "max_lane": "emergency",
                "trust_headers": True,
            },
            {"name": "bank-b", "key_sha256": [_digest(KEYS["bank-b"])]},
        ],
        "sessions": {
            "redis_url": redis_url,
            "timeout_ms": STORE_MS,
            "min_ttl_seconds": 2,
            "max_ttl_seconds": 20,
            "max_turns": 6,
        },
        **LIMITS,
    }
    smaller = copy.deepcopy(whole)
    del smaller["pools"][0]["backends"][-1], smaller["business_types"][-1]
    smaller["pools"][0]["window"] = {"min": 4, "max": 8}
    smaller["tenants"][0]["weight"] = 1
    smaller["queue"]["max_waiting"] = 32
    bad = {**copy.deepcopy(whole), "lanes": {"emergency": {"reserved_per_pool": -1}}}
    return {
        name: json.dumps(content) for name, content in (("whole", whole), ("smaller", smaller), ("bad", bad))
    }


def _backend(name: str, port: int) -> dict[str, str]:
    return {"name": name, "url": f"http://127.0.0.1:{port}"}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
