"""The gateway's configuration in the demo: two pools, three business types found by keywords, tenants by key.

The same as this file would be, with the names of `headrace.example.yaml`: pools `high-batch` and `low-latency` by role, each with a window that moves
between a quarter of an engine's batch and the whole of it, and `RESERVED_PER_POOL` slots that only emergencies may use; a latency target per type;
tenant `bank-a`, believed and allowed every lane, `bank-b`, and `guest` for the key that libraries are given when none is needed. Clients
without a key may call. Engines are probed every `PROBE_SECONDS`, more often than by default, so that one that is back is seen to be back.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from gateway.demo.business import BANK_A_KEY, BANK_B_KEY, GUEST_KEY, TYPES
from gateway.session_settings import SessionSettings
from gateway.settings import (
    BackendSettings,
    BusinessTypeSettings,
    EmergencySettings,
    LanesSettings,
    LogSettings,
    MatchSettings,
    PoolSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
    TenantSettings,
    WindowSettings,
)
from policies.pool_choice import PoolRole
from policies.terms import Lane

PROBE_SECONDS = 2.0
RESERVED_PER_POOL = 1


def settings_from(plan: dict[str, Any]) -> Settings:
    """`plan` is `gateway_child`'s: port, where sessions are kept ("" in memory), and per pool its name, window and backends."""
    return Settings(
        pools=tuple(_pool(pool["name"], pool["window"], pool["backends"]) for pool in plan["pools"]),
        server=ServerSettings(port=plan["port"]),
        probes=ProbeSettings(interval_seconds=PROBE_SECONDS),
        lanes=LanesSettings(emergency=EmergencySettings(reserved_per_pool=RESERVED_PER_POOL)),
        business_types=tuple(
            BusinessTypeSettings(
                name=kind.id,
                latency_target_ms=kind.target_ms,
                lane=Lane.INTERACTIVE,
                pools=kind.pools,
                match=MatchSettings(keywords=kind.keywords),
            )
            for kind in TYPES
        ),
        tenants=(
            TenantSettings(
                name="bank-a",
                key_sha256=_digests(BANK_A_KEY),
                weight=2,
                max_lane=Lane.EMERGENCY,
                trust_headers=True,
            ),
            TenantSettings(name="bank-b", key_sha256=_digests(BANK_B_KEY)),
            TenantSettings(name="guest", key_sha256=_digests(GUEST_KEY)),
        ),
        sessions=SessionSettings(redis_url=plan["redis_url"]),
        log=LogSettings(requests=False),
    )


def _pool(name: str, window: int, backends: list[tuple[str, str]]) -> PoolSettings:
    return PoolSettings(
        name=name,
        role=PoolRole(name),
        window=WindowSettings(start=window, min=max(1, window // 4), max=window),
        backends=tuple(BackendSettings(name=backend, url=url) for backend, url in backends),
    )


def _digests(key: str) -> tuple[str, ...]:
    return (sha256(key.encode()).hexdigest(),)
