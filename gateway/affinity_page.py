"""What `/admin/affinity` shows: how full the affinity table is, how good its guesses are, and which prefixes are asked for most, by their hashes.

No text of a prompt and no session id is there to be shown: neither is kept.
"""

from __future__ import annotations

from typing import Any

from routing.router import Router


def affinity_state(router: Router, now: float) -> dict[str, Any]:
    """JSON; looks at all hot prefixes for the most used: 2 ms for a full table of the default size, 11 ms for a million."""
    placement = router.placement
    table, sessions, paths = placement.table, placement.sessions, placement.paths
    names = {home.number: home.backend.id for home in placement.homes}
    hot_share, cold_share = paths.shares()
    gap = sessions.mean_gap_seconds
    return {
        "enabled": placement.rules.enabled,
        "max_prefixes": table.max_prefixes,
        "hot": {
            "prefixes": len(table.hot),
            "capacity": table.hot.capacity,
            "collided": table.hot.collided,
            "lifetime_seconds": round(sessions.lifetime_seconds, 1),
        },
        "cold": {"prefixes": table.cold.used, "capacity": table.cold.capacity},
        "sessions": {
            "remembered": len(sessions),
            "capacity": sessions.capacity,
            "mean_gap_seconds": None if gap is None else round(gap, 1),
        },
        "paths": {
            "hot_share": round(hot_share, 3),
            "cold_share": round(cold_share, 3),
            "hot_traffic": round(paths.hot_traffic, 3),
            "cold_open": paths.rules.cold_open,
        },
        "placements": placement.by,
        "backends": [
            {
                "id": home.backend.id,
                "trust": round(home.trust, 3),
                "restarts": home.generation,
                "predicted_cached_tokens": round(home.predicted_tokens),
                "found_cached_tokens": round(home.found_tokens),
            }
            for home in placement.homes
        ],
        "top_prefixes": [
            {
                "hash": f"{one.fingerprint:016x}",
                "backends": [names[number] for number in one.homes if number in names],
                "uses": one.uses,
                "idle_seconds": round(one.idle_seconds, 1),
            }
            for one in table.top(now)
        ],
    }
