"""Sums of the gateway's metrics page."""

from __future__ import annotations

from collections.abc import Mapping


def total(page: str, name: str, label: str = "") -> float | None:
    """The sum of a metric's samples that carry `label`, from a page in Prometheus' text format; None if there are none."""
    values = []
    for line in page.splitlines():
        sample, _, value = line.rpartition(" ")
        if sample.partition("{")[0] == name and label in sample:
            values.append(float(value))
    return sum(values) if values else None


COUNTERS: Mapping[str, tuple[str, str]] = {
    "requests": ("headrace_requests_total", ""),
    "refusals": ("headrace_refusals_total", ""),
    "aborts": ("headrace_aborts_total", ""),
    "cut": ("headrace_cut_answers_total", ""),
    "reloads": ("headrace_config_reloads_total", 'result="ok"'),
    "bad reloads": ("headrace_config_reloads_total", 'result="failed"'),
}
LEVELS: Mapping[str, tuple[str, str]] = {
    "requests in flight": ("headrace_requests_in_flight", ""),
    "requests that wait": ("headrace_requests_waiting", ""),
    "weighted tokens that wait": ("headrace_waiting_weighted_tokens", ""),
    "flows that wait": ("headrace_flows_waiting", ""),
    "slots taken": ("headrace_backend_in_flight", ""),
    "tokens reserved": ("headrace_backend_reserved_tokens", ""),
    "prefill tokens under way": ("headrace_backend_prefill_tokens", ""),
    "requests on a path": ("headrace_path_in_flight", ""),
    "emergencies that run": ("headrace_emergencies_in_flight", ""),
    "reserved slots lent": ("headrace_reserve_slots_lent", ""),
    "upstream connections in use": ("headrace_upstream_connections", 'state="busy"'),
    "asyncio tasks": ("headrace_asyncio_tasks", ""),
    "session writes queued": ("headrace_session_writes_queued", ""),
}


def counters(page: str) -> dict[str, int]:
    return {name: int(total(page, *of) or 0) for name, of in COUNTERS.items()}


def levels(page: str) -> dict[str, float]:
    """Raises `KeyError` where the page lacks one: a level that is not there would always be at its start."""
    found = {}
    for name, of in LEVELS.items():
        value = total(page, *of)
        if value is None:
            raise KeyError(f"{of[0]} is not on the gateway's page")
        found[name] = value
    return found
