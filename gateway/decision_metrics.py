"""What the decision core decided, and what it has to decide about now, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| requests_waiting, waiting_weighted_tokens | gauge | lane | in the queue now, and what they are predicted to cost |
| oldest_wait_seconds | gauge | lane | of those that wait now, 0 where nobody does |
| flows_waiting | gauge | | lanes' tenants' business types with something waiting |
| starts_total | counter | lane waited | requests that got their first slot, at once (`no`) or after they had waited (`yes`) |
| starving_dispatches_total | counter | | dispatched out of turn because their flow had not been served for long |
| evictions_total | counter | lane | put out of a full queue for one of a higher lane |
| relegations_total | counter | | served as batch because their deadline could not be met |
| shed_share | gauge | lane | of the requests that find no slot, the share that is refused at present because their queue stands; the highest of the lane's queues |
| wait_error_seconds | histogram | | waited less predicted at arrival, of requests with a deadline; above 0 it was promised too much |
| drain_weighted_tokens_per_second | gauge | | what is served while requests wait; shedding and `retry-after` go by it; absent until it is known |
| spills_total | counter | home pool | started on `pool` though `home`, which is preferred, serves their model |
| gathered_requests | histogram | pool | sizes of batches that were gathered |
| gather_holds_total | counter | pool | times that a pool with a free slot held a request back for others to come |
| emergencies_total | counter | tenant result | `granted`, or `demoted` to interactive because the tenant's budget was used up |
| emergencies_in_flight, reserve_slots_lent | gauge | pool | emergencies that run; slots of the reserve that others hold |
| preemptions_total | counter | | requests whose slot went to an emergency before they had an answer, and that were put back |
| retry_budget_refusals_total | counter | | failed attempts that were not repeated because too many were |
| charged_weighted_tokens_total | counter | tenant | what fair queueing charged for requests that ended; nothing for emergencies and on backends without a window |
| prompt_estimate_error_ratio | histogram | | estimated against counted prompt tokens, as a share of these, of the answers that were learnt from |

A weighted token is what `policies.cost` says. Everything is counted in the core (`routing.counts`) and read at a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.series import show
from policies.emergency import lent_slots
from routing.counts import Counts, Histogram
from routing.pool import Pool
from routing.queue_view import QueueView
from routing.router import Router


class Decisions(Collector):
    def __init__(self, now_state: Callable[[], tuple[Router, float]]) -> None:
        """`now_state` gives the router and its time."""
        self._now_state = now_state

    def describe(self) -> Iterable[Metric]:
        return ()  # the router does not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router, now = self._now_state()
        counts, queue = router.counts, router.queue.snapshot(now)
        yield from _queue(router, queue, now)
        yield from _starts(counts, queue)
        yield from _placement(router, counts)
        yield from _tenants(counts)
        yield CounterMetricFamily("headrace_preemptions", "Put back for an emergency", router.preempted)
        yield CounterMetricFamily(
            "headrace_retry_budget_refusals", "Second tries beyond the budget", counts.retries_over_budget
        )
        yield _histogram("headrace_wait_error_seconds", "Waited less predicted", {(): counts.wait_errors})
        yield _histogram(
            "headrace_prompt_estimate_error_ratio", "Of estimated prompt tokens", {(): counts.prompt_errors}
        )


def lent(router: Router, pool: Pool) -> int:
    """Slots of the pool's reserve that others than emergencies hold."""
    if pool.capacity == inf:
        return 0
    return lent_slots(int(pool.capacity), pool.in_flight, pool.in_flight_emergency, router.rules.reserve)


def _queue(router: Router, queue: QueueView, now: float) -> Iterable[Metric]:
    waiting = GaugeMetricFamily("headrace_requests_waiting", "Waiting for a slot now", labels=("lane",))
    tokens = GaugeMetricFamily("headrace_waiting_weighted_tokens", "Their predicted cost", labels=("lane",))
    oldest = GaugeMetricFamily("headrace_oldest_wait_seconds", "The longest wait now", labels=("lane",))
    for lane in queue.lanes:
        waiting.add_metric((lane.lane,), lane.waiting)
        tokens.add_metric((lane.lane,), lane.cost)
        oldest.add_metric((lane.lane,), lane.oldest_wait_seconds)
    yield from (waiting, tokens, oldest)
    yield GaugeMetricFamily("headrace_flows_waiting", "Flows with something waiting now", queue.flows_waiting)
    drain = GaugeMetricFamily("headrace_drain_weighted_tokens_per_second", "Served while requests wait")
    rate = router.forecast.drain_rate(queue.waiting > 0, now)
    if rate is not None:
        drain.add_metric((), rate)
    yield drain
    shed = GaugeMetricFamily("headrace_shed_share", "Refused because their queue stands", labels=("lane",))
    for name, share in router.admission.overload.shares().items():
        shed.add_metric((name,), share)
    yield shed


def _starts(counts: Counts, queue: QueueView) -> Iterable[Metric]:
    starts = CounterMetricFamily(
        "headrace_starts", "Requests that got their first slot", labels=("lane", "waited")
    )
    for waited, by_lane in (("no", counts.at_once), ("yes", counts.after_wait)):
        for lane, count in by_lane.items():
            starts.add_metric((lane, waited), count)
    yield starts
    yield CounterMetricFamily(
        "headrace_starving_dispatches", "Out of turn, for a starving flow", queue.for_starving
    )
    evictions = CounterMetricFamily("headrace_evictions", "Put out of a full queue", labels=("lane",))
    for lane, count in counts.evicted.items():
        evictions.add_metric((lane,), count)
    yield evictions
    yield CounterMetricFamily("headrace_relegations", "Served as batch for their deadline", counts.relegated)


def _placement(router: Router, counts: Counts) -> Iterable[Metric]:
    spills = CounterMetricFamily("headrace_spills", "Started away from home", labels=("home", "pool"))
    for labels, count in counts.spills.items():
        spills.add_metric(labels, count)
    yield spills
    sizes: dict[tuple[str, ...], Histogram] = {(pool,): each for pool, each in counts.batches.items()}
    yield _histogram("headrace_gathered_requests", "Sizes of gathered batches", sizes, ("pool",))
    holds = CounterMetricFamily("headrace_gather_holds", "Held back for others to come", labels=("pool",))
    for pool_name, count in counts.holds.items():
        holds.add_metric((pool_name,), count)
    yield holds
    emergencies = GaugeMetricFamily(
        "headrace_emergencies_in_flight", "Emergencies that run now", labels=("pool",)
    )
    reserve = GaugeMetricFamily(
        "headrace_reserve_slots_lent", "Slots of the reserve that others hold now", labels=("pool",)
    )
    for pool in router.fleet.pools.values():
        emergencies.add_metric((pool.name,), pool.in_flight_emergency)
        reserve.add_metric((pool.name,), lent(router, pool))
    yield from (emergencies, reserve)


def _tenants(counts: Counts) -> Iterable[Metric]:
    emergencies = CounterMetricFamily(
        "headrace_emergencies", "Requests for the emergency lane", labels=("tenant", "result")
    )
    for (tenant, granted), count in counts.emergencies.items():
        emergencies.add_metric((tenant, "granted" if granted else "demoted"), count)
    yield emergencies
    charged = CounterMetricFamily(
        "headrace_charged_weighted_tokens", "Charged by fair queueing", labels=("tenant",)
    )
    for tenant, cost in counts.charged.items():
        charged.add_metric((tenant,), cost)
    yield charged


def _histogram(
    name: str,
    documentation: str,
    histograms: Mapping[tuple[str, ...], Histogram],
    labels: Sequence[str] = (),
) -> Metric:
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in histograms.items():
        show(histogram, family, values)
    return family
