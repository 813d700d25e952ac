"""Reads an engine's load out of what the engine sends: its metrics page, SGLang's load pages, or the load header of an answer.

A real metrics page has 50 to 250 KB of histograms, of which a dozen lines matter: `gateway.text_format` finds those (100 KB of vLLM in 0.11 ms, 250 KB of SGLang in 0.25 ms).
Sums over replicas (`engine` of vLLM, `dp_rank` of SGLang), the fullest one's KV use. SGLang repeats its gauges for each priority and its total
has `priority=""`, so only that one counts; in its counters that is a priority like any other, so all of them add up.
SGLang's load pages have neither start time nor prefix counters. Its `total_prefill_uncached_tokens`, in the page that is read already, falls when
it restarts as they would; a second page (250 KB) is not read for the rest.
A name that is missing, a value that is no number (`NaN`, negative, garbage) in any series of a name: None for that field. Nothing here raises.

Limits: the load header says what one of several API servers knows, without the running requests; `gateway.load_header` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import isfinite

import orjson

from gateway.text_format import labels_of, samples_of
from policies.dialects import LOAD_NAMES, NOTHING_TOLD, Dialect, EngineReport, LoadNames

LOAD_HEADER = b"endpoint-load-metrics"

_LOADS_FIELDS = {
    "waiting": "num_waiting_reqs",
    "running": "num_running_reqs",
    "max_num_seqs": "max_running_requests",
    "token_capacity": "max_total_num_tokens",
    "waiting_tokens": "num_waiting_uncached_tokens",
    "prefilled_tokens": "total_prefill_uncached_tokens",
}
"""Of `/v1/loads`, all counted in requests or tokens of one replica."""
_STARTED_AT = "process_start_time_seconds"
_MOST_RANKS = 4096
_LARGEST = 2.0**63

Series = list[tuple[dict[bytes, bytes], float | None]]
"""Labels and values of one name."""


def read_metrics(page: bytes, dialect: Dialect) -> EngineReport:
    """From a page in the Prometheus text format. The start time is any Python server's: alone it tells nothing of an engine."""
    names = LOAD_NAMES.get(dialect)
    if names is None:
        return NOTHING_TOLD
    found: dict[str, Series] = {}
    for name, samples in samples_of(page, _wanted(names)).items():
        found.setdefault(name[len(names.family) + 1 :], []).extend(
            (labels_of(sample), _number(sample.value)) for sample in samples
        )
    report = EngineReport(
        waiting=_replica_sum(_first(found, names.waiting), names),
        running=_replica_sum(_first(found, names.running), names),
        kv_usage=_largest_share([value for _, value in _totals(_first(found, names.kv_usage))]),
        max_num_seqs=_replica_sum(_first(found, names.max_num_seqs), names),
        token_capacity=_replica_sum(_first(found, names.token_capacity), names)
        if names.token_capacity
        else _capacity(found.get(names.capacity_labels, [])),
        prefix_hits=_sum([value for _, value in _first(found, names.prefix_hits)]),
        prefix_queries=_sum([value for _, value in _first(found, names.prefix_queries)]),
    )
    return report if report == NOTHING_TOLD else report._replace(started_at=_started_at(page))


def read_loads(page: bytes) -> EngineReport:
    """From SGLang's `/v1/loads`, or from the `/get_load` of its older releases, where `num_reqs` is waiting and running together."""
    try:
        content = orjson.loads(page)
    except orjson.JSONDecodeError:
        return NOTHING_TOLD
    ranks = content.get("loads") if isinstance(content, dict) else content
    if not isinstance(ranks, list) or not ranks or len(ranks) > _MOST_RANKS:
        return NOTHING_TOLD
    rows = [rank if isinstance(rank, dict) else {} for rank in ranks]

    def column(field: str) -> list[float | None]:
        return [_number(row.get(field)) for row in rows]

    if isinstance(content, list):
        waiting, both = _sum(column("num_waiting_reqs")), _sum(column("num_reqs"))
        running = None if waiting is None or both is None else max(0, both - waiting)
        return EngineReport(waiting=waiting, running=running)
    counts = {name: _sum(column(field)) for name, field in _LOADS_FIELDS.items()}
    return EngineReport(kv_usage=_largest_share(column("token_usage")), **counts)


def read_load_header(value: bytes) -> EngineReport:
    """From the `endpoint-load-metrics` header that vLLM adds to an answer that was asked for with `endpoint-load-metrics-format`."""
    form, _, rest = value.strip().partition(b" ")
    pairs: list[tuple[str, object]] = []
    if form.upper() == b"TEXT":
        for item in rest.split(b","):
            name, _, number = item.strip().partition(b"=")
            pairs.append((name.decode("latin-1").removeprefix("named_metrics."), number))
    elif form.upper() == b"JSON":
        try:
            named = orjson.loads(rest)["named_metrics"]
            pairs += named.items()
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, IndexError):
            return NOTHING_TOLD
    waiting = [_number(said) for name, said in pairs if name == "num_requests_waiting"]
    running = [_number(said) for name, said in pairs if name == "num_requests_running"]
    usage = [_number(said) for name, said in pairs if name == "kv_cache_usage_perc"]
    return EngineReport(waiting=_sum(waiting), running=_sum(running), kv_usage=_largest_share(usage))


def untold(report: EngineReport) -> list[str]:
    """The fields that the engine did not tell. `prefilled_tokens` only stands in for the prefix counters and is not missed beside them."""
    missing = [name for name, value in zip(report._fields, report, strict=True) if value is None]
    return [name for name in missing if name != "prefilled_tokens"]


@cache
def _wanted(names: LoadNames) -> tuple[str, ...]:
    """All that is looked for, with each separator."""
    wanted = {
        *names.running,
        *names.waiting,
        *names.kv_usage,
        *names.max_num_seqs,
        *names.token_capacity,
        *names.prefix_hits,
        *names.prefix_queries,
        *filter(None, [names.capacity_labels]),
    }
    return tuple(
        f"{names.family}{separator}{name}" for separator in names.separators for name in sorted(wanted)
    )


def _first(found: Mapping[str, Series], names: Iterable[str]) -> Series:
    """The series of the first name that is there."""
    return next((found[name] for name in names if name in found), [])


def _totals(series: Series) -> Series:
    """Without the repetitions of a gauge for single priorities."""
    return [entry for entry in series if not entry[0].get(b"priority")]


def _replica_sum(series: Series, names: LoadNames) -> int | None:
    label = names.replica_label.encode()
    replicas: dict[bytes | None, float] = {}
    for labels, value in _totals(series):
        if value is None:
            return None
        replica = labels.get(label)
        replicas[replica] = max(value, replicas.get(replica, 0.0))
    return _sum(list(replicas.values()))


def _capacity(series: Series) -> int | None:
    """Of vLLM: tokens told outright, by older releases as blocks and their size."""
    sizes: list[float | None] = []
    for labels, _ in series:
        size = _number(labels.get(b"kv_cache_size_tokens"))
        if size is None:
            blocks, block_size = (_number(labels.get(name)) for name in (b"num_gpu_blocks", b"block_size"))
            size = None if blocks is None or block_size is None else blocks * block_size
        sizes.append(size)
    return _sum(sizes)


def _started_at(page: bytes) -> float | None:
    """Of several processes on one page the youngest: it is the one that started anew."""
    values = [_number(sample.value) for sample in samples_of(page, (_STARTED_AT,)).get(_STARTED_AT, [])]
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | bytes):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) and 0 <= number < _LARGEST else None


def _sum(values: Sequence[float | None]) -> int | None:
    """None where there is nothing, or where one replica's part is missing: half a sum would look like a whole one."""
    known = [value for value in values if value is not None]
    return int(sum(known)) if known and len(known) == len(values) else None


def _largest_share(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(1.0, max(known)) if known and len(known) == len(values) else None
