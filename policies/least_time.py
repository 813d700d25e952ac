"""Which backend answers soonest, as one number per backend that orders them.

Decides: the key of a backend; the smallest is taken first, an infinite one never.
    key = slowdown * (in_flight + foreign + 1) / window
The share of the window that would be in use with the request there stands for the time to its first byte, because a batch's step time grows with
its size; the slowdown ratio (observed / expected time to the first byte, 1 for a healthy engine) scales it, so that an engine that is k times slower
holds a k-th of the others' share. The one to be added counts as well: without it an idle engine looks the best however slow it is.
Inputs: `in_flight` requests of this gateway, which are known at once and without error, and alone decide whether a slot is free; `foreign` requests of others, as the engine told
last; `window` requests or None for unbounded, where
the number itself counts; `slowdown` > 0.
Limits: counts requests, not tokens. Other gateways' requests show as late as they are reported, and in the slowdown; behind windows that move, which already follow
what the engine reports, in these alone. Where both kinds of backend are in one order, those
without a window come last but when idle.
"""

from __future__ import annotations

from math import inf


def load_key(in_flight: int, window: int | None, slowdown: float, foreign: int = 0) -> float:
    if window is None:
        return slowdown * (in_flight + foreign + 1)
    if in_flight >= window:
        return inf
    return slowdown * (in_flight + foreign + 1) / window
