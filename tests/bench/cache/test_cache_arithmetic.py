"""What the verdict of the cache benchmark rests on: shares and loads from samples, recoveries, the bars, the tables, the picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings
from tests.bench.cache.bars import disturbance_verdicts, missed, verdicts
from tests.bench.cache.disturbances import Disturbed, disturbed
from tests.bench.cache.fleet import RESTARTED, Watched
from tests.bench.cache.picture import picture
from tests.bench.cache.report import comparison, disturbance_lines, markdown, save_json
from tests.bench.cache.run import Ended, Figures, Run, Saturation, figures
from tests.bench.cache.samples import (
    Samples,
    back_after,
    cached_share,
    increase,
    load_back_after,
    load_shares,
    mean_loads,
    over_bound,
    overshoots,
    since,
    worst_overshoot,
)
from tests.bench.cache.schedule import Call, Kind, disturbed_phases, standard_phases
from tests.bench.cache.working_set import WorkingSet
from tests.bench.slo.bars import Verdict
from tests.bench.slo.schedule import Phase, starts

_FIGURES = Figures(
    calls=100,
    unanswered=0,
    cached_share=0.45,
    first_byte_p50_ms=60.0,
    first_byte_p99_ms=300.0,
    answer_p50_ms=250.0,
    mean_load=2.0,
    largest_load=2.4,
    over_bound=-0.1,
    over_bound_p99=1.5,
)
_DISTURBED = Disturbed(
    before_share=0.45,
    settled_share=0.44,
    shift_seconds=4.0,
    storm_requests=0.5,
    load_shares=[0.05, 0.12],
    fleet_share=0.44,
    restart_seconds=6.0,
    load_seconds=20.0,
    unanswered_shift=0,
    unanswered_restart=3,
)


def _samples(shares: list[float], loads: list[list[int]] | None = None, engines: int = 8) -> Samples:
    """One sample a tenth of a second, between two of which each engine is asked for 100 tokens and finds this share of them."""
    count = len(shares) + 1
    hits = [0]
    for share in shares:
        hits.append(hits[-1] + round(100 * share))
    return Samples(
        at=[number / 10 for number in range(count)],
        loads=loads or [[2] * engines] * count,
        queries=[[100 * number] * engines for number in range(count)],
        hits=[[found] * engines for found in hits],
    )


def _named(found: list[Verdict]) -> dict[str, Verdict]:
    return {one.name: one for one in found}


def test_a_counter_that_falls_belongs_to_a_new_engine() -> None:
    assert increase([10, 30, 30, 5, 7]) == 27
    assert increase([4]) == 0


def test_the_cached_share_is_that_of_all_engines_together_in_the_time() -> None:
    samples = Samples(
        at=[0.0, 1.0, 2.0, 3.0],
        loads=[[0, 0]] * 4,
        queries=[[0, 0], [100, 300], [200, 600], [900, 900]],
        hits=[[0, 0], [100, 0], [150, 150], [150, 150]],
    )
    assert cached_share(samples, 0.0, 3.0) == 0.375
    assert cached_share(samples, 1.0, 2.5) == 0.5
    assert cached_share(samples, 0.0, 3.0, engine=0) == 0.75
    idle = replace(samples, queries=[[7, 7]] * 4)
    assert math.isnan(cached_share(idle, 0.0, 3.0))


def test_times_can_be_counted_from_the_beginning_of_the_schedule() -> None:
    assert since(_samples([0.5]), 0.1).at == [-0.1, 0.0]


def test_loads_are_averaged_per_engine_before_they_are_compared() -> None:
    samples = _samples([0.0] * 3, loads=[[0, 4], [4, 0], [2, 2], [9, 9]], engines=2)
    assert mean_loads(samples, 0.0, 0.3) == [2.0, 2.0]
    assert over_bound([2.0, 2.0]) == -0.5
    assert overshoots(samples, 0.0, 0.3) == [1.5, 1.5, -0.5]
    assert over_bound([6.0, 2.0], engine=1) == -3.0


def test_a_recovery_counts_only_windows_that_hold_nothing_from_before() -> None:
    samples = _samples([0.5] * 20 + [0.0] * 20 + [0.5] * 40)
    took = back_after(samples, 2.0, 8.0, level=0.45, window=1.0)
    assert abs(took - 2.9) < 0.15
    assert back_after(samples, 2.0, 3.9, level=0.45, window=1.0) == math.inf
    assert abs(back_after(samples, 5.0, 8.0, level=0.45, window=1.0) - 1.0) < 0.15


def test_a_storm_is_the_worst_moving_load_of_one_engine() -> None:
    quiet, storm = [2] * 8, [2] * 7 + [10]
    samples = _samples([0.5] * 59, loads=[quiet] * 20 + [storm] * 20 + [quiet] * 20)
    found = worst_overshoot(samples, 0.0, 6.0, window=2.0, engine=7)
    assert abs(found - (10 - 1.25 * 3)) < 0.3
    assert worst_overshoot(samples, 0.0, 6.0, window=2.0, engine=0) < 0
    assert load_shares(samples, 2.0, 4.0, 7) == [10 / 24, 10 / 24]


def test_a_load_is_back_when_it_is_near_the_mean() -> None:
    without, half, whole = [8] * 7 + [0], [8] * 7 + [4], [8] * 8
    samples = _samples([0.5] * 59, loads=[without] * 20 + [half] * 20 + [whole] * 20)
    took = load_back_after(samples, 1.0, 6.0, level=0.75, window=1.0, engine=7)
    assert abs(took - 3.5) < 0.15
    assert load_back_after(samples, 1.0, 4.0, level=0.75, window=1.0, engine=7) == math.inf


def _ended(due: float, phase: int, *, first_byte_ms: float = 100.0, status: int = 200) -> Ended:
    call = Call(due, phase, Kind.SYSTEM, 1, 0, -1, (40,), 20, False, False)
    return Ended(call, status, first_byte_ms, 2 * first_byte_ms, "")


def _run(phases: tuple[Phase, ...], samples: Samples, calls: list[Ended]) -> Run:
    return Run("headrace", "1", phases, calls, samples, [], 1)


def test_the_figures_are_those_of_the_measured_phase() -> None:
    phases = standard_phases(seconds=4.0, warm_up_seconds=2.0)
    calls = [_ended(1.0, 0, first_byte_ms=900.0)]
    calls += [_ended(3.0, 1, first_byte_ms=float(number)) for number in range(1, 100)]
    calls.append(_ended(3.0, 1, status=503, first_byte_ms=5_000.0))
    found = figures(_run(phases, _samples([0.0] * 20 + [0.4] * 45), calls))
    assert (found.calls, found.unanswered) == (100, 1)
    assert (found.first_byte_p50_ms, found.first_byte_p99_ms) == (50.0, 99.0)
    assert abs(found.cached_share - 0.4) < 0.01
    assert (found.mean_load, found.largest_load, found.over_bound) == (2.0, 2.0, -0.5)


def test_what_a_disturbance_did_is_read_from_its_phases() -> None:
    phases = disturbed_phases(warm_up_seconds=1, steady_seconds=3, shift_seconds=12, restart_seconds=10)
    shift, restart, end = starts(phases)[2:]
    shares = [0.5] * round(10 * shift) + [0.1] * 20 + [0.5] * (round(10 * (restart - shift)) - 20)
    shares += [0.4] * (round(10 * (end - restart)) + 5)
    samples = _samples(shares)
    for number in range(round(10 * (restart + 1)), len(samples.at)):
        # The new engine finds nothing in its first 3 s.
        lost = min(number - round(10 * (restart + 1)), 30) * 40
        samples.hits[number] = [
            found - lost * (engine == RESTARTED) for engine, found in enumerate(samples.hits[number])
        ]
    calls = [_ended(shift + 1, 2), _ended(restart + 1, 3, status=0), _ended(restart + 1, 3)]
    found = disturbed(_run(phases, samples, calls))
    assert abs(found.settled_share - 0.5) < 0.01
    assert 3.0 < found.shift_seconds < 4.2
    assert (found.unanswered_shift, found.unanswered_restart) == (0, 1)
    assert found.storm_requests == -0.5
    assert found.load_shares == [1 / 8] * 9
    assert 4.0 < found.restart_seconds < 7.0
    assert abs(found.load_seconds - 4.0) < 0.15


def test_headrace_is_compared_with_the_better_router_of_each_policy() -> None:
    peers = {
        "smg-round-robin": replace(_FIGURES, cached_share=0.2, first_byte_p99_ms=400.0),
        "vllm-router-round-robin": replace(_FIGURES, cached_share=0.3, first_byte_p99_ms=500.0),
        "smg-power-of-two": replace(_FIGURES, cached_share=0.4),
        "vllm-router-cache-aware": replace(_FIGURES, cached_share=0.5, first_byte_p99_ms=600.0),
    }
    found = _named(verdicts(_FIGURES, peers))
    values = {name: round(one.value, 6) for name, one in found.items()}
    assert values["cached-token share, of round robin's"] == 1.5
    assert values["first byte P99, of round robin's"] == 0.75
    assert values["cached-token share, of power of two's"] == 1.125
    assert values["cached-token share, of cache-aware's"] == 0.9
    assert values["first byte P99, of cache-aware's"] == 0.5
    assert {name for name, one in found.items() if not one.met} == {
        "cached-token share, of power of two's",
        "cached-token share, of cache-aware's",
    }


def test_bars_without_an_opponent_are_left_out_and_the_others_stay() -> None:
    alone = _named(verdicts(_FIGURES, {}))
    assert set(alone) == {"largest load, above 1.25 x mean", "calls without an answer"}
    assert not missed(list(alone.values()))
    assert missed(verdicts(replace(_FIGURES, over_bound=1.1), {}))
    assert missed(verdicts(replace(_FIGURES, unanswered=1), {}))


def test_a_disturbance_has_bars_on_times_and_on_load() -> None:
    assert not missed(disturbance_verdicts(_DISTURBED))
    assert missed(disturbance_verdicts(replace(_DISTURBED, shift_seconds=math.inf)))
    assert missed(disturbance_verdicts(replace(_DISTURBED, storm_requests=2.1)))
    assert missed(disturbance_verdicts(replace(_DISTURBED, restart_seconds=math.inf)))
    assert missed(disturbance_verdicts(replace(_DISTURBED, load_seconds=40.1)))


def test_the_comparison_has_a_row_for_each_contender() -> None:
    head, ours = comparison({"headrace": _FIGURES})
    assert len(head) == len(ours)
    assert ours[:4] == ["headrace", "45.0 %", "60 ms", "300 ms"]
    table = markdown({"headrace": _FIGURES}, verdicts(_FIGURES, {}), ["today"])
    assert "| headrace | 45.0 % |" in table
    assert "| calls without an answer | 0.00  | <= 0 |" in table


def test_what_never_came_is_said_and_saved(tmp_path: Path) -> None:
    never = replace(_DISTURBED, restart_seconds=math.inf)
    assert "never" in disturbance_lines(never)[-1]
    phases = standard_phases(seconds=4.0, warm_up_seconds=2.0)
    one = _run(phases, _samples([0.4] * 65), [_ended(3.0, 1)])
    file = tmp_path / "cache.json"
    known = WorkingSet(10, 0.7, 1900.0)
    save_json(file, [one], Saturation(90.0, math.nan), known, verdicts(_FIGURES, {}), never, ["today"])
    saved = json.loads(file.read_text())
    assert saved["disturbances"]["restart_seconds"] is None
    assert saved["runs"][0]["kinds"]["system"] == {
        "calls": 1,
        "first_byte_p50_ms": 100.0,
        "first_byte_p99_ms": 100.0,
    }


def test_the_picture_is_well_formed_and_a_longer_bar_is_a_larger_value() -> None:
    drawn = picture({"headrace": _FIGURES, "a & b": replace(_FIGURES, cached_share=0.2)})
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.get("width", "0")) for bar in root.iter(f"{space}rect")][1:]
    assert len(widths) == 4
    assert widths[0] > widths[1]
    assert "a & b" in [text.text for text in root.iter(f"{space}text")]


async def test_an_engine_can_be_replaced_by_a_fresh_one_on_its_port() -> None:
    servers = [await start(EngineSettings(time_scale=0), "127.0.0.1", 0) for _ in range(2)]
    first, ports = servers[1], [server.port for server in servers]
    first.engine.measurements.prefix_queries = 9
    watched = Watched(servers)
    watched.sample()
    await watched.replace(1, 0.0)
    watched.sample()
    assert watched.samples.queries == [[0, 9], [0, 0]]
    assert not first.accepting
    assert [server.port for server in servers] == ports
    for server in servers:
        await server.close()
