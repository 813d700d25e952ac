"""Between which bounds a backend's window moves, and where it starts, where the configuration leaves that open.

Decides: the `WindowRules` of one backend.
    the engine says how many requests it runs at a time (SGLang: max_running_requests):
        start there, at least a quarter of it, at most 1.25 times it
    it does not say (vLLM):
        start at 64, the controller finds the rest
all of it within 4..1024. Below a quarter batching collapses and requests take longer; beyond 1.25 times there is only a queue in the engine.
What the configuration gives of `min` and `start` holds; the rest follows it.
Limit: a start beyond the engine's batch lets a queue into it until the engine tells of it, or the controller sees it.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from policies.windows import WindowRules

LOWEST = 4
HIGHEST = 1024
START = 64
LOWEST_SHARE = 0.25
HIGHEST_SHARE = 1.25


class AutomaticWindow(NamedTuple):
    """What the configuration gives of a window that is otherwise automatic."""

    min: int | None = None
    start: int | None = None


def automatic_rules(given: AutomaticWindow, max_num_seqs: int | None) -> WindowRules:
    """`max_num_seqs` as the engine says, None or 0 where it does not."""
    start, lowest, highest = START, LOWEST, HIGHEST
    if max_num_seqs:
        start = _within(max_num_seqs)
        lowest, highest = _within(LOWEST_SHARE * max_num_seqs), _within(HIGHEST_SHARE * max_num_seqs)
    if given.start is not None:
        start, lowest, highest = given.start, min(lowest, given.start), max(highest, given.start)
    if given.min is not None:
        lowest, highest = given.min, max(highest, given.min)
    return WindowRules(min(max(start, lowest), highest), lowest, highest)


def _within(requests: float) -> int:
    return min(max(ceil(requests), LOWEST), HIGHEST)
