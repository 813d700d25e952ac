"""Whether an engine has restarted between two reports of it, and lost its KV cache with that.

Decides: `has_restarted`. It has where
    its start time differs by more than `JITTER_SECONDS` (vLLM: `process_start_time_seconds`, Unix time of its API process), or
    a counter that rises for the life of an engine is smaller than before: `prefix_queries`, `prefix_hits`, `prefilled_tokens`.
What either report does not tell says nothing. The jitter is there because the page's start time is the machine's boot time, known to the second,
plus the process's age at its start; it can hide only the restart of an engine that had not lived for a second.
Inputs: reports in the order in which they were made; `before` may be put together from several (`policies.dialects.amended`).
Limits: an engine that tells counters alone (SGLang) and has counted more since its restart than in its life before is not noticed; where reports are a
second apart that was a life of seconds, with a cache not worth keeping. An address behind which several engines answer in turn looks like one that
restarts with every report.
"""

from __future__ import annotations

from policies.dialects import EngineReport

JITTER_SECONDS = 1.0


def has_restarted(before: EngineReport | None, after: EngineReport) -> bool:
    if before is None:
        return False
    started, starts = before.started_at, after.started_at
    if started is not None and starts is not None and abs(starts - started) > JITTER_SECONDS:
        return True
    return any(count < known for known, count in _counters_of_both(before, after))


def would_tell(before: EngineReport | None, after: EngineReport) -> bool:
    """Whether a restart between the two would have shown: both tell the start time, or the same counter."""
    if before is None:
        return False
    both_told_start = before.started_at is not None and after.started_at is not None
    return both_told_start or bool(_counters_of_both(before, after))


def tells_life(report: EngineReport) -> bool:
    """Whether it has something that a restart changes."""
    return would_tell(report, report)


def _counters_of_both(before: EngineReport, after: EngineReport) -> list[tuple[int, int]]:
    pairs = (
        (before.prefix_queries, after.prefix_queries),
        (before.prefix_hits, after.prefix_hits),
        (before.prefilled_tokens, after.prefilled_tokens),
    )
    return [(known, count) for known, count in pairs if known is not None and count is not None]
