"""What waits for one receiver of alerts: the newest state of each rule and subject, where the receiver may believe another."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from gateway.alert_backlog import Backlog, Batch, Key
from gateway.alert_forms import Told
from policies.metric_catalogue import Scope
from policies.rule_events import RuleCause, RuleEvent, Severity

HOT = ("gpu-hot", "a")
FULL = ("memory-full", "a")
MANY = 100
_at = count(1)


def told(key: Key, is_active: bool, severity: Severity = Severity.WARNING) -> Told:
    event = RuleEvent(
        key[0], Scope.BACKEND, key[1], severity, is_active, "m", 1.0, 1.0, (), RuleCause.METRIC, 0.0
    )
    at = float(next(_at))
    return Told(event, at, at)


def note(backlog: Backlog, key: Key, is_active: bool) -> Told:
    one = told(key, is_active)
    assert backlog.note(key, one, MANY) == 0
    return one


def states(batch: Batch) -> dict[Key, bool]:
    return {key: one.event.is_active for key, one in batch.items()}


def test_what_let_go_before_anybody_heard_of_it_is_never_told() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    note(backlog, HOT, False)
    assert backlog.take(MANY) == {}


def test_what_was_told_is_not_told_again_and_what_lets_go_afterwards_is() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    backlog.delivered(backlog.take(MANY))
    note(backlog, HOT, True)
    assert backlog.waiting == {}
    note(backlog, HOT, False)
    assert states(backlog.take(MANY)) == {HOT: False}


def test_a_rule_that_flaps_behind_a_slow_receiver_is_told_once() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    backlog.delivered(backlog.take(MANY))
    for _ in range(5):
        note(backlog, HOT, False)
        note(backlog, HOT, True)
    assert backlog.waiting == {}


def test_what_lets_go_while_its_beginning_is_on_the_way_is_told_afterwards() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    batch = backlog.take(MANY)
    note(backlog, HOT, False)
    backlog.delivered(batch)
    assert states(backlog.take(MANY)) == {HOT: False}


def test_what_comes_back_while_its_beginning_is_on_the_way_is_not_told_twice() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    batch = backlog.take(MANY)
    note(backlog, HOT, False)
    note(backlog, HOT, True)
    backlog.delivered(batch)
    assert backlog.waiting == {}


def test_after_a_call_that_may_have_arrived_the_end_is_told_and_after_one_that_was_never_made_it_is_not() -> (
    None
):
    for was_sent in (True, False):
        backlog = Backlog()
        note(backlog, HOT, True)
        backlog.failed(backlog.take(MANY), was_sent)
        assert states(backlog.waiting) == {HOT: True}
        note(backlog, HOT, False)
        assert states(backlog.waiting) == ({HOT: False} if was_sent else {})


def test_what_is_refused_is_given_up_and_its_end_is_of_no_interest() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    assert backlog.refused(backlog.take(MANY)) == 1
    assert backlog.waiting == {}
    note(backlog, HOT, False)
    assert backlog.waiting == {}
    note(backlog, HOT, True)
    assert states(backlog.waiting) == {HOT: True}


def test_a_call_takes_the_longest_waiting_first_and_no_more_than_it_may() -> None:
    backlog = Backlog()
    keys = [("r", str(n)) for n in range(5)]
    for key in keys:
        note(backlog, key, True)
    assert list(backlog.take(2)) == keys[:2]


def test_beyond_the_bound_the_longest_waiting_goes_and_critical_ones_go_last() -> None:
    backlog = Backlog()
    critical = ("r", "critical")
    backlog.note(critical, told(critical, True, Severity.CRITICAL), 2)
    dropped = sum(backlog.note(("r", str(n)), told(("r", str(n)), True), 2) for n in range(4))
    assert dropped == 3
    assert list(backlog.waiting) == [critical, ("r", "3")]
    for n in range(2):
        backlog.note(("c", str(n)), told(("c", str(n)), True, Severity.CRITICAL), 2)
    assert list(backlog.waiting) == [("c", "0"), ("c", "1")]


def test_what_is_on_its_way_is_not_given_up() -> None:
    backlog = Backlog()
    note(backlog, HOT, True)
    batch = backlog.take(MANY)
    assert backlog.note(FULL, told(FULL, True), 1) == 1
    assert list(backlog.waiting) == [HOT]
    backlog.delivered(batch)
    assert backlog.waiting == {}


def test_only_what_still_holds_is_repeated() -> None:
    backlog = Backlog()
    first = note(backlog, HOT, True)
    note(backlog, FULL, True)
    backlog.delivered(backlog.take(MANY))
    note(backlog, FULL, False)
    assert backlog.repeat([HOT, FULL]) == {HOT: first}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.sampled_from([HOT, FULL]), st.booleans()),
        st.tuples(st.sampled_from(["delivered", "lost", "not sent", "unanswered"])),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_fails_in_between_a_receiver_ends_up_knowing_what_holds_and_hears_no_state_twice(
    steps: list[tuple[str, ...]],
) -> None:
    backlog = Backlog()
    truth: dict[Key, bool] = {}
    heard: dict[Key, bool] = {}

    def call(outcome: str) -> None:
        batch = backlog.take(1)
        if outcome in ("delivered", "unanswered"):
            for key, state in states(batch).items():
                if outcome == "delivered" and not lost:
                    assert heard.get(key, False) is not state, "told what it knows"
                heard[key] = state
        if outcome == "delivered":
            backlog.delivered(batch)
        else:
            lost.extend(batch if outcome != "not sent" else ())
            backlog.failed(batch, outcome != "not sent")

    lost: list[Key] = []
    for step in steps:
        if step[0] == "note":
            _, key, is_active = step
            truth[key] = bool(is_active)  # type: ignore[index]
            note(backlog, key, bool(is_active))  # type: ignore[arg-type]
        else:
            call(step[0])
    while backlog.waiting:
        call("delivered")
    assert {key for key, state in truth.items() if state} == {key for key, state in heard.items() if state}
    assert backlog.holding.keys() == {key for key, state in truth.items() if state}
