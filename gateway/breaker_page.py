"""What keeps traffic from each backend, for `/admin/state`: holds, shares, and its circuits with what they have counted."""

from __future__ import annotations

from math import inf
from typing import Any

from routing.backend import open_ratio
from routing.circuit import Circuit
from routing.router import Router


def breaker_state(router: Router, now: float) -> dict[str, Any]:
    circuits = router.circuits
    return {
        "open_ratio": open_ratio(router.fleet) or 0.0,
        "pools_in_panic": [pool for pool in router.fleet.pools if circuits.panics(pool)],
        "lost_requests": circuits.lost_requests,
        "lost_tokens": round(circuits.lost_tokens),
        "backends": [
            {
                "id": watch.backend.id,
                "holds": sorted(watch.backend.holds),
                "shares": {limiter.value: share for limiter, share in watch.backend.shares.items()},
                "share": watch.backend.share,
                "circuits": [_circuit(one, router, now) for one in watch.circuits.values()],
            }
            for watch in circuits.watches
        ],
    }


def _circuit(circuit: Circuit, router: Router, now: float) -> dict[str, Any]:
    rules = router.circuits.rules
    windows = {"fast": rules.fast_seconds, "slow": rules.slow_seconds}
    return {
        "model": circuit.model,
        "state": circuit.state,
        "cause": circuit.cause,
        "k": circuit.k,
        "probe_in_seconds": None if circuit.probe_at == inf else max(0.0, round(circuit.probe_at - now, 3)),
        "good_canaries": circuit.good_canaries,
        "failures_in_a_row": circuit.in_a_row,
        **{name: circuit.window.last(seconds, now)._asdict() for name, seconds in windows.items()},
    }
