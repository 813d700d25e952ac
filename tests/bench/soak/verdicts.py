"""What a soak found, as figures with their bars: nothing lost, nothing told twice, nothing unexplained, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.record import Outcome
from gateway.sessions.guarded_store import MAX_CALLS
from tests.bench.arithmetic import slope
from tests.bench.figures import Figure
from tests.bench.soak.ledger import End, Fault
from tests.bench.soak.run import Found, Resident

GROWN_MB = 16.0
"""Of memory, from the quiet after the warm-up to the quiet at the end: tables that fill up, and what the allocator keeps."""
STILL_GROWING_MB = 4.0
"""Over the second half: 500 bytes for each call of three minutes, 25 of an hour, less of more."""


def figures(found: Found) -> list[Figure]:
    return [*_balance(found), *_errors(found), *_left_behind(found), *_counted(found)]


def _balance(found: Found) -> Iterable[Figure]:
    ledger, counters = found.ledger, found.counters
    outcomes = ledger.outcomes
    total = f"{ledger.kinds.total():,} sent, {ledger.ends[End.LEFT]:,} of them not waited for"
    yield _none("calls waited for that the gateway does not tell of", len(ledger.without_line), total)
    yield _none(
        "endings told of that no client knows", len(ledger.without_client), f"{ledger.lines:,} told of"
    )
    yield _fault("endings on which client and gateway do not agree", ledger.disagreeing)
    ended = {
        "requests in": (counters["requests"], ledger.lines),
        "refused": (counters["refusals"], ledger.reasons.total()),
        "aborted": (counters["aborts"], outcomes[Outcome.ABORTED]),
        "cut": (counters["cut"], outcomes[Outcome.CUT]),
    }
    for name, (on_page, in_log) in ended.items():
        yield _none(
            f"{name}: page against log",
            abs(on_page - in_log),
            f"{on_page:,} on the page, {in_log:,} in the log",
        )
    shares = ", ".join(f"{outcome} {outcomes[outcome]:,}" for outcome in Outcome)
    yield _none("requests in, less every ending", abs(counters["requests"] - outcomes.total()), shares)
    yield _none("log lines dropped", ledger.log_lines_dropped, "")


def _errors(found: Found) -> Iterable[Figure]:
    ledger = found.ledger
    yield _none("clients that hung", ledger.ends[End.HUNG], "")
    yield _none("connections that went away without a word", ledger.ends[End.LOST], "")
    yield _fault("5xx and cut answers that nothing explains", ledger.unexplained)
    yield _none("exceptions in the gateway's log", found.tracebacks, "")
    for name, counter in (("good", "reloads"), ("bad", "bad reloads")):
        asked = sum(count for file, count in found.reloads.items() if (file == "bad") is (name == "bad"))
        yield _none(
            f"reloads of a {name} file: asked against counted",
            abs(asked - found.counters[counter]),
            f"{asked}",
        )


def _left_behind(found: Found) -> Iterable[Figure]:
    for name, before in found.before.items():
        after = found.after[name]
        yield _none(f"{name} leaked", max(0.0, after - before), f"{before:.0f} before, {after:.0f} after")
    yield Figure(
        topic="Soak",
        name="connections to Redis",
        value=found.store_connections,
        unit="",
        bar=MAX_CALLS,
        detail="at the end",
    )
    sizes = [one.mb for one in found.memory]
    yield Figure(
        topic="Soak",
        name="memory grown",
        value=sizes[-1] - sizes[0],
        unit="MB",
        bar=GROWN_MB,
        detail=f"{sizes[0]:.1f} MB before, {max(sizes):.1f} MB at most, {sizes[-1]:.1f} MB after",
        rounds=tuple(sizes),
    )
    yield _still_growing(found.memory[1:-1])


def _still_growing(under_load: Sequence[Resident]) -> Figure:
    """By the slope over the second half: what fills up once is full by then, and a leak is not."""
    half = under_load[len(under_load) // 2 :]
    calls = half[-1].calls - half[0].calls if half else 0
    mb_per_call = slope([one.calls for one in half], [one.mb for one in half])
    return Figure(
        topic="Soak",
        name="memory still growing",
        value=mb_per_call * calls,
        unit="MB",
        bar=STILL_GROWING_MB,
        detail=f"over the second half, {calls:,} calls: {mb_per_call * 1e6:.0f} bytes for each",
    )


def _counted(found: Found) -> Iterable[Figure]:
    ledger = found.ledger
    told = ", ".join(f"{name} {count:,}" for name, count in ledger.errors.most_common())
    yield _count("explained 5xx and cut answers", ledger.errors.total(), told)
    alone = ", ".join(f"{name} {count:,}" for name, count in ledger.without_core.most_common())
    yield _count("5xx and cut answers for want of a core alone", ledger.without_core.total(), alone)
    waited = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.waited_seconds.items())
    yield _count("seconds waited for a core", sum(found.waited_seconds.values()), waited)
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(ledger.statuses.items()))
    yield _count("calls", ledger.kinds.total(), f"in {found.seconds:.0f} s; {statuses}")
    counts = found.spans.counts
    yield _count(
        "troubles",
        sum(counts.values()),
        ", ".join(f"{name} {count}" for name, count in counts.items() if count),
    )
    if missing := [name for name, count in counts.items() if not count]:
        yield _count("kinds of trouble that did not come", len(missing), ", ".join(missing))


def _none(name: str, value: float, detail: str) -> Figure:
    return Figure(topic="Soak", name=name, value=value, unit="", bar=0.0, detail=detail)


def _fault(name: str, fault: Fault) -> Figure:
    return _none(name, fault.count, "; ".join(fault.examples))


def _count(name: str, value: float, detail: str) -> Figure:
    return Figure(topic="Soak", name=name, value=value, unit="", detail=detail)
