"""How the session store is, as those see it that ask it, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| session_store_calls_total | counter | call outcome | calls that ended, by `ok` or what was wrong (`gateway.sessions.store.StoreFault`) |
| session_store_seconds | histogram | call | how long they took; those that were not sent (`open`) are not in it |
| session_store_breaker_open | gauge | | 1 while the store is not asked because it did not answer |
| session_writes_queued | gauge | | writes that the store has not confirmed |
| session_writes_dropped_total | counter | kind | writes given up: too many waited, or for too long |

Nothing of a session is in them; without a store that is asked over the network there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.sessions.guarded_store import OK, GuardedStore, StoreCall
from gateway.sessions.store import StoreFault
from gateway.sessions.write_behind import WriteBehind


class StoreNow(Collector):
    """Read off the live objects at a scrape."""

    def __init__(self, now_state: Callable[[], tuple[GuardedStore, WriteBehind] | None]) -> None:
        self._now_state = now_state

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        state = self._now_state()
        if state is not None:
            store, writes = state
            yield from _calls(store)
            yield from _writes(writes)


def _calls(store: GuardedStore) -> Iterable[Metric]:
    calls = CounterMetricFamily(
        "headrace_session_store_calls", "Calls that ended", labels=("call", "outcome")
    )
    seconds = HistogramMetricFamily("headrace_session_store_seconds", "Of calls", labels=("call",))
    for call in StoreCall:
        for outcome in (OK, *StoreFault):
            calls.add_metric((call, outcome), store.calls.get((call, outcome), 0))
        store.seconds[call].add_to(seconds, (call,))
    is_open = GaugeMetricFamily("headrace_session_store_breaker_open", "1 if not asked", float(store.is_open))
    return calls, seconds, is_open


def _writes(writes: WriteBehind) -> Iterable[Metric]:
    queued = GaugeMetricFamily("headrace_session_writes_queued", "Not confirmed", writes.queued)
    dropped = CounterMetricFamily("headrace_session_writes_dropped", "Given up", labels=("kind",))
    for kind, count in writes.dropped.items():
        dropped.add_metric((kind,), count)
    return queued, dropped
