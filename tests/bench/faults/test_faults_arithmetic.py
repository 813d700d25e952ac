"""What the verdicts of the fault benchmark rest on: which calls were in flight, what counts as failed, when a fault was noticed and when an engine was back."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from math import inf

import pytest

from tests.bench.faults.__main__ import parse
from tests.bench.faults.bars import verdicts
from tests.bench.faults.case_job import measures_of, over_budget, trips
from tests.bench.faults.cases import ENGINES, Case, Change, Phase, cases
from tests.bench.faults.configuration import recovery_bound_seconds, settings
from tests.bench.faults.fleet import NOT_OURS, Arrival
from tests.bench.faults.measures import (
    Ended,
    Losses,
    Measures,
    Stay,
    detected,
    endings,
    first_answer,
    in_flight,
    measure,
    most_in_flight,
    recovered,
    stays,
)
from tests.bench.faults.report import Row, comparison, markdown, matrix
from tests.bench.faults.requests import Call

_CASE = Case("cut", "cuts", (Phase(20.0, 0.5),), (Change(5.0, 1, {"cut": 5}), Change(10.0, 1)))
_BEGAN = 100.0
_CHANGED_AT = [105.0, 110.0]
_OVER = 120.0


def _ended(
    number: int,
    due: float,
    seconds: float = 0.5,
    status: int = 200,
    *,
    streamed: bool = True,
    attempts: int = 1,
    begun: bool = True,
) -> Ended:
    return Ended(
        Call(due, number, streamed, 20), _BEGAN + due, _BEGAN + due + seconds, status, attempts, begun
    )


def _measured(ended: list[Ended], arrivals: list[Arrival], case: Case = _CASE) -> Measures:
    return measure(case, ended, arrivals, _CHANGED_AT, _OVER)


def test_a_call_is_on_an_engine_until_it_ends_or_arrives_elsewhere() -> None:
    ended = [_ended(0, 4.0, 3.0), _ended(1, 4.0, 1.0)]
    arrivals = [Arrival(105.5, 3, 0), Arrival(104.0, 0, 0), Arrival(104.1, 0, 1), Arrival(104.2, 0, NOT_OURS)]
    staying = stays(ended, arrivals)
    assert staying == [Stay(0, 0, 104.0, 105.5), Stay(0, 3, 105.5, 107.0), Stay(1, 0, 104.1, 105.0)]
    assert in_flight(staying, range(1), 104.5) == {0, 1}
    assert in_flight(staying, range(1), 105.2) == {0}
    assert in_flight(staying, range(4), 106.0) == {0}


def test_the_most_in_flight_is_counted_after_each_arrival() -> None:
    staying = [Stay(0, 0, 1.0, 4.0), Stay(1, 0, 2.0, 3.0), Stay(2, 0, 2.5, 2.6), Stay(3, 1, 2.5, 9.0)]
    assert most_in_flight(staying, range(1), 1.5, 5.0) == 3
    assert most_in_flight(staying, range(1), 3.5, 5.0) == 1


def test_losses_are_told_apart_by_sort_and_by_who_was_in_flight_at_the_beginning() -> None:
    ended = [
        _ended(0, 2.0, status=0),  # over before the fault
        _ended(1, 4.8, status=0),
        _ended(2, 4.9, streamed=False),
        _ended(3, 6.0, status=-2),
        _ended(4, 6.0, status=502, streamed=False, begun=True),
        _ended(5, 12.0, status=0),  # made when the fault was over
    ]
    arrivals = [Arrival(104.8, 0, 1), Arrival(104.9, 0, 2), Arrival(106.0, 0, 3), Arrival(106.0, 2, 4)]
    found = _measured(ended, arrivals)
    assert found.streams == Losses(calls=3, failed=3, in_flight=1, failed_in_flight=1)
    assert found.plain == Losses(calls=2, failed=1, in_flight=1, failed_in_flight=0, lost=1)
    assert (found.streams.failed_later, found.failed_after, found.in_flight, found.failed) == (2, 1, 2, 4)
    assert found.most_in_flight == 2


@pytest.mark.parametrize(
    ("status", "begun", "lost"),
    [(200, True, False), (0, True, False), (0, False, True), (503, True, True), (-1, False, True)],
)
def test_a_call_is_lost_if_its_client_had_nothing_of_an_answer(status: int, begun: bool, lost: bool) -> None:
    assert _ended(0, 1.0, status=status, begun=begun).is_lost is lost


def test_a_fault_is_detected_where_the_traffic_pauses() -> None:
    assert detected([4.9, 5.2, 6.0, 8.5, 8.6, 11.0], 5.0, 10.0) == 1.0
    assert detected([4.9], 5.0, 10.0) == 0.0
    assert detected([5.5, 6.4, 7.3, 8.2, 9.1], 5.0, 10.0) is None


def test_what_comes_after_the_detection_is_counted() -> None:
    arrivals = [Arrival(at, 0, NOT_OURS) for at in (105.2, 107.0)]
    ended = [_ended(number, due, 0.1) for number, due in enumerate((5.1, 5.2, 7.0, 8.5, 12.0))]
    arrivals += [Arrival(_BEGAN + one.call.due, 0, one.call.number) for one in ended]
    found = _measured(ended, arrivals)
    assert found.detected_seconds == pytest.approx(0.2)
    assert found.later == 2


def test_a_gone_listener_is_seen_by_the_calls_that_were_tried_twice_or_failed() -> None:
    gone = Case("dead", "dead", _CASE.phases, (Change(5.0, 1, {"dead": True}), Change(10.0, 1)))
    ended = [_ended(0, 5.1), _ended(1, 5.4, attempts=2), _ended(2, 5.9, status=502), _ended(3, 6.2)]
    found = _measured(ended, [], gone)
    assert found.detected_seconds == pytest.approx(0.9)
    assert found.retried == 1


def test_the_first_answer_is_of_a_call_that_came_after_the_end() -> None:
    ended = [_ended(0, 9.5, 5.0), _ended(1, 10.5, status=0), _ended(2, 11.0, 1.0)]
    staying = stays(ended, [Arrival(_BEGAN + one.call.due, 0, one.call.number) for one in ended])
    assert first_answer(staying, ended, 0, 110.0) == pytest.approx(2.0)
    assert first_answer(staying, ended, 1, 110.0) is None


def test_an_engine_is_back_where_it_has_most_of_an_even_share() -> None:
    even = [Arrival(110.0 + 0.01 * number, number % ENGINES, number) for number in range(1000)]
    without = [one for one in even if one.engine or one.at >= 113.0]
    assert recovered(even, 0, 110.0, _OVER) == 0.0
    back = recovered(without, 0, 110.0, _OVER)
    assert back is not None
    assert back == pytest.approx(3.04), "its first arrival, though the two seconds began before it"
    assert recovered([one for one in even if one.engine], 0, 110.0, _OVER) is None


def test_of_several_engines_the_last_one_counts_and_one_that_never_returns_is_never() -> None:
    even = [Arrival(110.0 + 0.01 * number, number % ENGINES, number) for number in range(1000)]
    ended = [_ended(number, 10.0 + 0.01 * number, 0.1) for number in range(1000)]
    both = Case("half", "half", _CASE.phases, (Change(5.0, 2, {"cut": 5}), Change(10.0, 2)))
    assert _measured(ended, even, both).recovered_seconds == pytest.approx(0.01)
    assert _measured(ended, [one for one in even if one.engine != 1], both).recovered_seconds is None


def test_a_fault_may_cost_what_was_in_flight_there_and_no_plain_call_that_could_be_repeated() -> None:
    found = Measures(
        streams=Losses(failed=3), plain=Losses(failed=1), most_in_flight=4, recovered_seconds=2.0
    )
    assert [verdict.met for verdict in verdicts(_CASE, found, 3.0)] == [True, True, True]
    found.streams.failed = 4
    assert [verdict.met for verdict in verdicts(_CASE, found, 3.0)] == [False, True, True]
    found.streams.failed, found.plain.lost = 3, 1
    assert [verdict.met for verdict in verdicts(_CASE, found, 1.9)] == [True, False, False]
    found.recovered_seconds = None
    assert verdicts(_CASE, found, 3.0)[-1].value == inf


def test_of_a_fleet_that_is_dead_only_its_return_is_asked() -> None:
    found = Measures(plain=Losses(failed=99, lost=99), recovered_seconds=2.0)
    (only,) = verdicts(cases()["all-dead"], found, 3.0)
    assert only.met
    names = [verdict.name for verdict in verdicts(cases()["half-dead"], found, 3.0)]
    assert names == ["half-dead: plain calls lost", "half-dead: its share of traffic is back after"]


def test_overload_may_open_nothing() -> None:
    overload = cases()["overload"]
    assert [one.met for one in verdicts(overload, Measures(opened={}), 3.0)] == [True]
    assert [one.met for one in verdicts(overload, Measures(opened={"failures": 1}), 3.0)] == [False]
    assert verdicts(overload, Measures(opened=None), 3.0) == []


def test_trips_are_counted_by_cause() -> None:
    page = (
        'headrace_circuit_trips_total{backend="a",cause="failures"} 2.0\n'
        'headrace_circuit_trips_total{backend="b",cause="failures"} 1.0\n'
        'headrace_circuit_trips_total{backend="b",cause="slow_calls"} 1.0\n'
        'headrace_circuit_transitions_total{backend="b",state="open"} 9.0\n'
    )
    assert trips(page) == {"failures": 3, "slow_calls": 1}
    assert over_budget(page) == 0
    assert over_budget(f"{page}headrace_retry_budget_refusals_total 4.0\n") == 4


def test_the_bound_of_the_recovery_follows_from_the_settings() -> None:
    # canary 1, longest pause 4, three canaries of 0.5, slow start 3, probe 1 + 1
    assert recovery_bound_seconds(settings(), 3, 0.5) == pytest.approx(11.5)


def test_every_fault_of_the_requirements_has_its_case_and_ends_before_the_load_does() -> None:
    known = cases(4.0)
    assert list(known) == [
        *("refuse", "reset", "silent", "stall", "cut", "500", "200-then-error", "slow"),
        *("flapping", "half-dead", "all-dead", "overload"),
    ]
    for case in known.values():
        assert [change.is_fault for change in case.changes] == [True, False] * len(case.spans)
        assert all(before.at < after.at for before, after in pairwise(case.changes))
        bound = recovery_bound_seconds(settings(), 3, 0.5)
        assert case.seconds >= case.changes[-1].at + bound if case.changes else not case.broken
    assert known["cut"].changes[1].at - known["cut"].changes[0].at == 4.0
    assert known["overload"].phases[1] == Phase(60.0, 3.0)


def test_endings_say_what_the_clients_got() -> None:
    ended = [_ended(0, 1.0, status=0), _ended(1, 1.0, status=0), _ended(2, 1.0, status=503), _ended(3, 1.0)]
    assert endings(ended, {2: "no_backend", 3: ""}) == {"lost": 2, "503 no_backend": 1}


def test_measures_survive_the_way_from_the_child() -> None:
    found = Measures(streams=Losses(calls=3, failed=1), detected_seconds=0.5, opened={"failures": 1})
    assert measures_of(asdict(found)) == found


def test_the_tables_say_what_failed_and_when_it_was_over() -> None:
    found = Measures(
        streams=Losses(calls=100, failed=3, in_flight=2, failed_in_flight=2),
        plain=Losses(calls=50),
        most_in_flight=5,
        detected_seconds=0.25,
        first_answer_seconds=1.5,
        opened={"consecutive": 1},
    )
    rows = [Row("headrace", "1", _CASE, found, []), Row("other", "2", _CASE, Measures(), [])]
    _, cells = matrix(rows[:1])
    assert cells == [
        *("cuts", "2, at most 5", "3 of 100 (3.00%); 2 of 2 in flight", "0 of 50 (0.00%)"),
        *("0.25 s", "0", "1.5 s", "never", "0", "consecutive 1"),
    ]
    assert comparison(rows)[1] == ["cuts", "3 / 5; never", "0 / 0; never"]
    assert "| cuts | 3 / 5; never |" in markdown([comparison(rows)], ["today"])


def test_cases_run_in_the_order_of_the_table_and_unknown_ones_are_refused() -> None:
    assert parse(["cut", "reset"]).cases == ["reset", "cut"]
    assert len(parse([]).cases) == 12
    with pytest.raises(SystemExit):
        parse(["earthquake"])
