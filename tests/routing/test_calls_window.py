"""Calls of the last seconds against a plain list of all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.circuit import Calls
from routing.calls_window import CallsWindow

STEPS = st.tuples(st.sampled_from([0.0, 0.3, 1.0, 2.5, 59.0, 61.0, 1000.0]), st.booleans(), st.booleans())


@given(st.integers(1, 60), st.lists(STEPS, max_size=60), st.integers(1, 70))
def test_what_is_counted_lies_in_the_last_seconds_and_nowhere_else(
    kept: int, steps: list[tuple[float, bool, bool]], asked: int
) -> None:
    window, now, all_calls = CallsWindow(kept), 0.0, []
    for pause, failed, slow in steps:
        now += pause
        window.note(now, failed, slow)
        all_calls.append((int(now), failed, slow))
        recent = [one for one in all_calls if one[0] > int(now) - min(kept, asked)]
        expected = Calls(len(recent), sum(one[1] for one in recent), sum(one[2] for one in recent))
        assert window.last(asked, now) == expected


def test_it_may_be_forgotten() -> None:
    window = CallsWindow(10)
    window.note(5.0, failed=True)
    window.forget()
    assert window.last(10, 5.0) == Calls()
    window.note(5.2, slow=True)
    assert window.last(10, 5.2) == Calls(1, 0, 1)
