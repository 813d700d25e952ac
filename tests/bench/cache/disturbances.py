"""What a shift of popularity and the restart of an engine did to a run.

Shift: popular system prompts and documents give way to others that nobody has seen. The share settles at what the engines found in the last
`SETTLED_SECONDS` of the phase; counted is the time until a moving share that holds nothing from before the shift comes within `SETTLED_WITHIN` of it.
So it is never shorter than `WINDOW_SECONDS`.

Restart: an engine's connections end, it refuses for a second, and is back with an empty cache. A storm is when everything that was there, or
everybody who sees an empty engine, goes there at once: its moving mean load is compared with the pool's. Its own cached-token share is measured over
`ENGINE_WINDOW_SECONDS`, since it gets an eighth of the requests; so is the time until it has `LOAD_LEVEL` of the pool's mean load again. Without both its prefixes would not have
moved back.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.cache.fleet import DOWN_SECONDS, RESTARTED
from tests.bench.cache.run import Run
from tests.bench.cache.samples import back_after, cached_share, load_back_after, load_shares, worst_overshoot
from tests.bench.cache.schedule import MEASURED, RESTART, SHIFT

WINDOW_SECONDS = 2.0
SETTLED_SECONDS = 8.0
SETTLED_WITHIN = 0.10
ENGINE_WINDOW_SECONDS = 4.0
ENGINE_WITHIN = 0.15
LOAD_LEVEL = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    before_share: float
    settled_share: float
    shift_seconds: float
    """Until the moving share is near what it settles at; infinite if it never is."""
    storm_requests: float
    """The most by which the new engine's moving load is above 1.25 times the mean."""
    load_shares: list[float]
    """Of each second since the engine is back: its part of all requests at the engines."""
    fleet_share: float
    """Cached-token share of all engines since the new one is back."""
    restart_seconds: float
    """Since it is back, until the new engine's moving share is near that of the fleet; infinite if it never is."""
    load_seconds: float
    """Since it is back, until its moving load is near the mean again; infinite if it never is."""
    unanswered_shift: int
    unanswered_restart: int


def disturbed(one: Run) -> Disturbed:
    samples = one.samples
    shift, shift_end = one.span(SHIFT)
    restart, restart_end = one.span(RESTART)
    back = restart + DOWN_SECONDS
    settled = cached_share(samples, shift_end - SETTLED_SECONDS, shift_end)
    fleet_share = cached_share(samples, back, restart_end)
    return Disturbed(
        before_share=cached_share(samples, *one.span(MEASURED)),
        settled_share=settled,
        shift_seconds=back_after(
            samples, shift, shift_end, level=(1 - SETTLED_WITHIN) * settled, window=WINDOW_SECONDS
        ),
        storm_requests=worst_overshoot(samples, back, restart_end, window=WINDOW_SECONDS, engine=RESTARTED),
        load_shares=load_shares(samples, back, restart_end, RESTARTED),
        fleet_share=fleet_share,
        restart_seconds=back_after(
            samples,
            back,
            restart_end,
            level=(1 - ENGINE_WITHIN) * fleet_share,
            window=ENGINE_WINDOW_SECONDS,
            engine=RESTARTED,
        ),
        load_seconds=load_back_after(
            samples, back, restart_end, level=LOAD_LEVEL, window=ENGINE_WINDOW_SECONDS, engine=RESTARTED
        ),
        unanswered_shift=sum(call.status != 200 for call in one.calls_of(SHIFT)),
        unanswered_restart=sum(call.status != 200 for call in one.calls_of(RESTART)),
    )
