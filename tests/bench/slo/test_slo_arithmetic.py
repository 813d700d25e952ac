"""What the verdict of the service-level benchmark rests on: endings, shares, the seconds of a recovery, the bars, the picture."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from tests.bench.slo.bars import Verdict, goodput, untagged_verdicts, verdicts
from tests.bench.slo.exchange import LOST
from tests.bench.slo.kinds import KINDS
from tests.bench.slo.load_generator import TIMED_OUT, Outcome, Reading
from tests.bench.slo.picture import Line, picture
from tests.bench.slo.report import comparison, markdown, recovery
from tests.bench.slo.run import Run, costs
from tests.bench.slo.schedule import Call, Phase, overload_phases, standard_phases
from tests.bench.slo.shares import (
    Ended,
    Ending,
    agreement,
    allowed_share,
    by_second,
    ended,
    ending,
    recovered_in,
    row,
    share_inside,
)

_PHASES = standard_phases(steady_seconds=2, burst_seconds=2, warm_up_seconds=1)


def _ended(
    due: float,
    what: Ending = Ending.INSIDE,
    *,
    phase: int = 1,
    kind: int = 0,
    emergency: bool = False,
    latency_ms: float = 100.0,
    sent_late_ms: float = 0.0,
    queue_ms: float = -1.0,
    refusal: str = "",
    business: str = "",
) -> Ended:
    call = Call(due, phase, kind, emergency, False, 400, 20)
    return Ended(call, what, latency_ms, sent_late_ms, queue_ms, refusal, business)


def _named(found: list[Verdict]) -> dict[str, Verdict]:
    return {one.name: one for one in found}


def test_an_answer_is_inside_up_to_its_target_and_late_after_it() -> None:
    assert ending(200, 300.0, 300) is Ending.INSIDE
    assert ending(200, 300.1, 300) is Ending.LATE
    assert ending(503, 1.0, 300) is Ending.REFUSED
    assert [ending(status, 1.0, 300) for status in (LOST, 500, 502)] == [Ending.FAILED] * 3
    assert ending(TIMED_OUT, 10_000.0, 300) is Ending.TIMED_OUT


def test_each_call_is_judged_by_the_target_of_its_type() -> None:
    schedule = [Call(0.0, 0, kind, False, False, 200, 20) for kind in range(len(KINDS))]
    outcome = Outcome(
        status=[200, 200, 429],
        latency_ms=[400.0, 400.0, 5.0],
        first_byte_ms=[400.0, 400.0, 5.0],
        sent_late_ms=[0.0, 0.0, 1.0],
        queue_ms=[3.0, 4.0, -1.0],
        business=["credit-card", "loan", ""],
        reason=["", "", "over_share"],
    )
    found = ended(schedule, outcome)
    assert [one.ending for one in found] == [Ending.INSIDE, Ending.LATE, Ending.REFUSED]
    assert [one.refusal for one in found] == ["", "", "429 over_share"]
    assert agreement(found) == 0.5


def test_a_share_is_one_of_all_calls_that_were_due() -> None:
    calls = [_ended(0), _ended(0, Ending.REFUSED), _ended(0, Ending.LATE), _ended(0, Ending.TIMED_OUT)]
    assert share_inside(calls) == 0.25
    assert math.isnan(share_inside([]))


def test_the_fleet_allows_what_it_can_answer_and_never_more_than_everything() -> None:
    assert allowed_share(420.0, 10_000, 10.0) == 0.42
    assert allowed_share(420.0, 4_000, 10.0) == 1.0


def test_a_row_counts_endings_and_times_answers_apart_from_refusals() -> None:
    calls = [_ended(0, latency_ms=float(value), queue_ms=value / 10) for value in range(1, 101)]
    calls.append(_ended(0, Ending.REFUSED, latency_ms=9.0, sent_late_ms=4.0, refusal="503 queue_full"))
    found = row(calls)
    assert (found.arrivals, found.count(Ending.INSIDE), found.count(Ending.FAILED)) == (101, 100, 0)
    assert (found.answer_p50_ms, found.answer_p99_ms, found.queue_p99_ms) == (50.5, 99.0, 9.9)
    assert found.refusal_p99_ms == 5.0
    assert found.refusals == {"503 queue_full": 1}
    assert row([]).answer_p99_ms is None


def test_a_call_counts_in_the_second_in_which_it_was_due() -> None:
    calls = [_ended(0.2, latency_ms=2_900.0), _ended(0.9, Ending.LATE), _ended(2.0)]
    first, second, third = by_second(calls, 3)
    assert (first, third) == (0.5, 1.0)
    assert math.isnan(second)


def test_recovery_is_the_second_from_which_it_stays_good() -> None:
    assert recovered_in([0.2, 0.99, 1.0], 0.99) == 1
    assert recovered_in([0.2, 1.0, 0.98, 1.0], 0.99) == 3
    assert recovered_in([1.0, 1.0], 0.99) == 0
    assert recovered_in([1.0, 0.5], 0.99) is None
    assert recovered_in([1.0, math.nan, 1.0], 0.99) == 2


def test_the_burst_is_judged_by_what_the_fleet_allows() -> None:
    # 20 arrivals in 2 s before a fleet that answers 5 per second: half of them can be answered.
    burst = [_ended(3.1, Ending.INSIDE if number < 8 else Ending.REFUSED, phase=2) for number in range(20)]
    found = _named(verdicts(burst, _PHASES, 5.0))
    assert found["burst: inside target, of the 50.0% allowed"].value == 80.0
    assert not found["burst: inside target, of the 50.0% allowed"].met
    assert found["burst: credit-card, of its fair share"].met
    assert found["timed out"].met


def test_a_type_that_starves_in_the_burst_misses_its_bar() -> None:
    burst = [_ended(3.1, phase=2)] * 10
    burst += [
        _ended(3.1, Ending.INSIDE if number < 1 else Ending.REFUSED, phase=2, kind=1) for number in range(10)
    ]
    found = _named(verdicts(burst, _PHASES, 5.0))
    assert found["burst: credit-card, of its fair share"].met
    assert not found["burst: wealth, of its fair share"].met


def test_the_first_second_after_the_burst_is_not_judged() -> None:
    after = [_ended(5.5, Ending.LATE, phase=3), _ended(6.0, phase=3), _ended(6.5, phase=3)]
    name = "after: inside target from the 2nd second on"
    assert _named(verdicts(after, _PHASES, 5.0))[name].value == 100.0
    late = [*after, _ended(6.9, Ending.LATE, phase=3)]
    assert not _named(verdicts(late, _PHASES, 5.0))[name].met


def test_emergencies_have_bars_of_their_own_in_every_phase() -> None:
    calls = [_ended(1.5, emergency=True, queue_ms=51.0), _ended(3.1, Ending.REFUSED, phase=2, emergency=True)]
    found = _named(verdicts(calls, _PHASES, 5.0))
    assert not found["steady: emergencies in the queue, P99"].met
    assert found["steady: emergencies inside target"].met
    assert not found["burst: emergencies inside target"].met
    assert "burst: emergencies in the queue, P99" not in found


def test_refusals_have_to_be_quick_and_nobody_may_time_out_or_fail() -> None:
    calls = [_ended(1.5, Ending.REFUSED, latency_ms=25.0, sent_late_ms=2.0), _ended(1.5, Ending.TIMED_OUT)]
    found = _named(verdicts([*calls, _ended(1.5, Ending.FAILED)], _PHASES, 5.0))
    assert found["refusals answered, P99"].value == 23.0
    assert not any(found[name].met for name in ("refusals answered, P99", "timed out", "failed"))


def test_an_overload_is_compared_with_the_burst_before_it() -> None:
    phases = overload_phases(burst=3, burst_seconds=20, reference_seconds=10)
    calls = [_ended(6, phase=1)] * 100 + [_ended(30, phase=3)] * 150
    late = _ended(14.9, latency_ms=200.0, phase=1)
    assert goodput([*calls, late], phases, "burst of 2") == 10.0, "it came when the phase was over"
    assert goodput(calls, phases, "burst") == 7.5
    found = _named(verdicts(calls, phases, 5.0))
    assert found["burst: goodput, of that in the burst of 2"].value == 75.0
    assert not found["burst: goodput, of that in the burst of 2"].met


def test_untagged_traffic_may_be_two_points_behind() -> None:
    tagged = [_ended(1.5)] * 100
    untagged = [_ended(1.5)] * 97 + [_ended(1.5, Ending.LATE)] * 3
    (found, *_) = untagged_verdicts(tagged, untagged, _PHASES)
    assert (found.name, round(found.value, 6), found.met) == (
        "steady: untagged traffic behind tagged",
        3.0,
        False,
    )
    assert untagged_verdicts(untagged, tagged, _PHASES)[0].met


def test_costs_are_cores_of_each_phase() -> None:
    names = ("engines", "gateway", "load generator")
    readings = [
        Reading(at=at, cpu=dict.fromkeys(names, used), waited=waited)
        for at, used, waited in ((0.0, 1.0, 0.0), (2.0, 2.0, 0.1), (4.0, 2.5, 0.1))
    ]
    outcome = Outcome(
        status=[200],
        latency_ms=[9.0],
        first_byte_ms=[9.0],
        sent_late_ms=[3.0],
        queue_ms=[0.0],
        business=[""],
        reason=[""],
        readings=readings,
    )
    phases = (Phase("steady", 1, 2), Phase("after", 1, 2))
    first, second = costs(outcome, [0], phases)
    assert (first.cores["gateway"], first.starved_share, first.sent_late_p99_ms) == (0.5, 0.05, 3.0)
    assert (second.cores["gateway"], second.sent_late_p99_ms) == (0.25, 0.0)


def _run() -> Run:
    calls = [
        _ended(1.5),
        _ended(3.1, Ending.REFUSED, phase=2),
        _ended(5.2, Ending.LATE, phase=3),
        _ended(6.2, phase=3),
    ]
    return Run("headrace", "1", _PHASES, calls, [], 1)


def test_recovery_is_counted_from_the_end_of_the_burst() -> None:
    assert recovery(_run()) == ([0.0, 1.0], 1)


def test_the_comparison_has_a_column_for_each_phase_and_says_what_the_fleet_allows() -> None:
    head, allowed, headrace = comparison([_run()], 0.25)
    assert head[1:4] == ["steady, 0.8 x", "burst, 2 x", "after, 0.8 x"]
    assert allowed[1:4] == ["50.0 %", "50.0 %", "25.0 %"]
    assert headrace == ["headrace 1", "100 %", "0.0 %", "50.0 %", "- %", "0", "1 s"]
    assert "| headrace 1 | 100 % |" in markdown([_run()], 0.25, ["today"])


def test_the_picture_is_well_formed_and_leaves_a_gap_where_nothing_was_due() -> None:
    lines = [Line("headrace", [1.0, 0.5, math.nan, 1.0, 1.0, 1.0]), Line("a & b", [1.0] * 6)]
    root = ElementTree.fromstring(picture(lines, _PHASES, 400.0))
    space = "{http://www.w3.org/2000/svg}"
    drawn = [line.get("points", "").split() for line in root.iter(f"{space}polyline")]
    assert [len(points) for points in drawn] == [2, 3, 6]
    heights = [float(point.split(",")[1]) for point in drawn[0]]
    assert heights[0] < heights[1]
    assert "a & b" in [text.text for text in root.iter(f"{space}text")]
