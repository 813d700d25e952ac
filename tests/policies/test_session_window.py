"""Which turns of a session leave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.session_window import TurnSize, WindowRules, fits, leaving

RULES = WindowRules(max_turns=3, max_tokens=100, max_entry_bytes=60, max_bytes=150)
TURNS = st.lists(st.builds(TurnSize, st.integers(0, 120), st.integers(0, 60), st.booleans()), max_size=8)


def test_the_oldest_leave_until_all_bounds_hold() -> None:
    small = TurnSize(10, 10, False)
    assert leaving([], RULES) == 0
    assert leaving([small] * 3, RULES) == 0
    assert leaving([small] * 5, RULES) == 2
    assert leaving([TurnSize(90, 10, False), small, small], RULES) == 1
    assert leaving([TurnSize(1, 60, False)] * 3, RULES) == 1
    assert leaving([TurnSize(1000, 10, False)], RULES) == 0, "the newest stays"


def test_what_follows_leaves_with_what_it_follows() -> None:
    small, result = TurnSize(10, 10, False), TurnSize(10, 10, True)
    assert leaving([small, result, small, small], RULES) == 2
    assert leaving([small, result, result, result], RULES) == 3
    assert leaving([result, small, small], RULES) == 0, "what it followed may never have been kept"


def test_an_entry_fits_up_to_its_bound() -> None:
    assert fits(60, RULES)
    assert not fits(61, RULES)


@given(TURNS)
def test_what_stays_is_the_longest_end_that_holds_all_bounds(turns: list[TurnSize]) -> None:
    gone = leaving(turns, RULES)
    assert 0 <= gone <= max(0, len(turns) - 1)

    def holds(start: int) -> bool:
        kept = turns[start:]
        is_within = (
            len(kept) <= RULES.max_turns
            and sum(turn.tokens for turn in kept) <= RULES.max_tokens
            and sum(turn.size_bytes for turn in kept) <= RULES.max_bytes
        )
        return len(kept) <= 1 or (is_within and not (start and kept[0].follows))

    assert holds(gone)
    assert not any(holds(start) for start in range(gone))


def test_turns_that_just_fill_a_bound_stay() -> None:
    assert leaving([TurnSize(50, 75, False)] * 2, RULES) == 0
    assert leaving([TurnSize(50, 1, False), TurnSize(51, 1, False)], RULES) == 1
    assert leaving([TurnSize(1, 75, False), TurnSize(1, 76, False)], RULES) == 1


def test_as_many_turns_leave_as_the_bytes_of_all_of_them_want() -> None:
    rules = WindowRules(max_turns=10, max_tokens=1000, max_entry_bytes=60, max_bytes=150)
    assert leaving([TurnSize(1, 60, False)] * 5, rules) == 3
