"""A client that is not trusted cannot choose whose share it uses or where it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.hints import NO_HINTS, Hints
from policies.terms import CachePath, Lane
from policies.trust import CONDITIONAL_HINTS, ignored_hints, trusted_hints

TEXT = st.text("ab", max_size=2)
HINTS = st.builds(
    Hints, TEXT, st.none() | st.sampled_from(Lane), TEXT, TEXT, st.none() | st.floats(1, 9), st.none() | st.sampled_from(CachePath), TEXT, TEXT, TEXT,
    st.booleans(), st.booleans(), TEXT,
)  # fmt: skip


@given(HINTS)
def test_a_trusted_client_is_taken_at_its_word(hints: Hints) -> None:
    assert trusted_hints(hints, True) is hints


@given(HINTS)
def test_of_others_only_lane_session_deadline_and_relegation_stay(hints: Hints) -> None:
    kept = trusted_hints(hints, False)
    assert (kept.lane, kept.session) == (hints.lane, hints.session)
    assert (kept.history, kept.session_seq) == (hints.history, hints.session_seq)
    assert (kept.deadline_ms, kept.relegate) == (hints.deadline_ms, hints.relegate)
    assert (kept.business, kept.tenant, kept.fairness, kept.pool, kept.backend) == ("",) * 5
    assert kept.path is None


def test_nothing_said_is_nothing_made() -> None:
    assert trusted_hints(NO_HINTS, False) is NO_HINTS


@given(HINTS, st.booleans(), st.sampled_from(Lane))
def test_what_does_not_count_is_named(hints: Hints, trust: bool, ceiling: Lane) -> None:
    counted = trusted_hints(hints, trust)
    ignored = ignored_hints(hints, counted, ceiling)
    assert len(set(ignored)) == len(ignored) and set(ignored) <= set(CONDITIONAL_HINTS)
    order = list(Lane)
    assert ("lane" in ignored) == (hints.lane is not None and order.index(hints.lane) < order.index(ceiling))
    said = {name for name in CONDITIONAL_HINTS if name != "lane" and getattr(hints, name)}
    assert set(ignored) - {"lane"} == (set() if trust else said)


def test_who_says_nothing_has_nothing_ignored() -> None:
    assert ignored_hints(NO_HINTS, NO_HINTS, Lane.BATCH) == ()
