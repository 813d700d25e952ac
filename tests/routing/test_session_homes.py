"""Where sessions went last: an exact LRU with a lifetime that their own gaps teach."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from policies.cache_lifetime import LifetimeRules
from routing.session_homes import SessionHomes


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), max_size=100))
def test_the_least_recently_sent_is_forgotten_first(sends: list[tuple[int, int]]) -> None:
    sessions, expected = SessionHomes(5, LifetimeRules()), OrderedDict[int, int]()
    for now, (session, home) in enumerate(sends):
        sessions.sent(session, home, float(now))
        expected[session] = home
        expected.move_to_end(session)
        if len(expected) > 5:
            expected.popitem(last=False)
        assert len(sessions) == len(expected) <= sessions.capacity
    for session in range(1, 13):
        assert sessions.home(session, float(len(sends))) == expected.get(session, 0)


def test_nothing_is_known_after_a_lifetime_which_is_twice_the_gaps() -> None:
    sessions = SessionHomes(5, LifetimeRules(min_seconds=1.0, max_seconds=600.0))
    sessions.sent(1, 7, 0.0)
    assert sessions.lifetime_seconds == 600.0
    for turn in range(1, 200):
        sessions.sent(1, 7, 20.0 * turn)
    assert abs(sessions.lifetime_seconds - 40.0) < 1e-6
    last = 20.0 * 199
    assert sessions.home(1, last + 39.0) == 7
    assert sessions.home(1, last + 41.0) == 0


def test_other_bounds_hold_at_once() -> None:
    sessions = SessionHomes(5, LifetimeRules(max_seconds=600.0))
    sessions.sent(1, 7, 0.0)
    sessions.configure(LifetimeRules(min_seconds=1.0, max_seconds=10.0))
    assert sessions.home(1, 11.0) == 0


def test_a_home_learnt_from_another_gateway_counts_and_teaches_no_gap() -> None:
    sessions = SessionHomes(5, LifetimeRules())
    assert sessions.known_for(1, 9.0) == float("inf")
    sessions.learnt(1, 7, 10.0)
    assert sessions.home(1, 11.0) == 7
    assert sessions.known_for(1, 12.5) == 2.5
    sessions.sent(1, 7, 13.0)
    assert sessions.mean_gap_seconds is None
    sessions.sent(1, 7, 17.0)
    assert sessions.mean_gap_seconds == 4.0


def test_a_request_that_moves_teaches_no_gap() -> None:
    sessions = SessionHomes(5, LifetimeRules())
    for turn in range(20):
        sessions.sent(1, 7, 20.0 * turn)
        sessions.sent(1, 8, 20.0 * turn + 0.5, is_moved=True)
        assert sessions.home(1, 20.0 * turn + 1.0) == 8
    assert sessions.mean_gap_seconds is not None
    assert abs(sessions.mean_gap_seconds - 19.5) < 1e-6


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=100))
def test_what_was_hot_is_remembered_of_known_sessions_alone(marks: list[tuple[int, bool]]) -> None:
    sessions = SessionHomes(5, LifetimeRules())
    for now, (session, is_hot) in enumerate(marks):
        sessions.mark(session, is_hot)
        assert not sessions.was_hot(session) or is_hot
        sessions.sent(session, 1, float(now))
        sessions.mark(session, is_hot)
        assert sessions.was_hot(session) is is_hot
        assert sum(sessions.was_hot(one) for one in range(1, 13)) <= len(sessions)
