"""What the gateway says of itself: its `/metrics` page, read as any monitoring would, and who waits there from `/admin/state`.

Only the few families and fields that are shown are parsed; one that is missing reads as zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import orjson
from prometheus_client.parser import text_string_to_metric_families

from gateway.upstream.client import Exchange
from gateway.upstream.failures import UpstreamFailure
from gateway.upstream.pool import ConnectionPool

_SHOWN = (
    "headrace_backend_up{",
    "headrace_backend_in_flight{",
    "headrace_retries_total{",
    "headrace_sessions_active ",
    "headrace_session_turns_total{",
    "headrace_session_store_breaker_open ",
)


@dataclass(slots=True)
class GatewayState:
    """By backend name, but for `waiting`, the requests in the gateway's queue by (lane, business type)."""

    up: dict[str, bool] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)
    moved_here: Counter[str] = field(default_factory=Counter)
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    sessions: int = 0
    """With a turn lately."""
    turns: int = 0
    """Kept so far."""
    is_store_away: bool | None = None
    """None where sessions are in the gateway's memory."""


def read_page(text: str) -> GatewayState:
    state = GatewayState()
    shown = "\n".join(line for line in text.splitlines() if line.startswith(_SHOWN))
    for family in text_string_to_metric_families(shown + "\n"):
        for sample in family.samples:
            backend, value = sample.labels.get("backend", ""), int(sample.value)
            match sample.name:
                case "headrace_backend_up":
                    state.up[backend] = bool(value)
                case "headrace_backend_in_flight":
                    state.in_flight[backend] = value
                case "headrace_retries_total":
                    state.moved_here[backend] += value
                case "headrace_sessions_active":
                    state.sessions = value
                case "headrace_session_turns_total" if sample.labels["result"] == "appended":
                    state.turns = value
                case "headrace_session_store_breaker_open":
                    state.is_store_away = bool(value)
    return state


def read_waiting(page: str) -> Counter[tuple[str, str]]:
    """Of the flows with the most waiting, which are all of them here."""
    waiting: Counter[tuple[str, str]] = Counter()
    for flow in orjson.loads(page)["flows"]:
        waiting[flow["lane"], flow["business"]] += flow["waiting"]
    return waiting


class GatewayPages:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def read(self) -> GatewayState | None:
        """None when it could not be had."""
        status, text = await self._get("/metrics")
        if status != 200:
            return None
        state = read_page(text)
        status, text = await self._get("/admin/state")
        if status == 200:
            state.waiting = read_waiting(text)
        return state

    async def is_ready(self) -> bool:
        return (await self._get("/readyz"))[0] == 200

    async def _get(self, path: str) -> tuple[int, str]:
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        body = b""
        try:
            async with Exchange(self._pool, head, b"", True) as answer:
                while data := await answer.read():
                    body += data
                return answer.status, body.decode()
        except UpstreamFailure:
            return 0, ""
