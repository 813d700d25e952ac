"""The waiting queue against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.sequence import Sequence
from gateway.emulator.waiting import WaitingQueue
from tests.emulator.virtual_time import prompt, sequence


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "discard"]), st.integers(-2, 2)), max_size=120))
def test_the_head_is_always_the_lowest_priority_number_and_among_equals_the_first(
    events: list[tuple[str, int]],
) -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    living: list[Sequence[str]] = []
    for number, (event, value) in enumerate(events):
        living.sort(key=lambda one: (one.priority, one.arrival))
        if event == "push":
            one = sequence("x", prompt(16), priority=value)
            one.arrival = number
            queue.push(one)
            living.append(one)
        elif living and event == "pop":
            assert queue.head() is living[0]
            queue.pop()
            living.pop(0)
        elif living:
            queue.discard(living.pop(value % len(living)))
        assert len(queue) == len(living)
    assert queue.head() is (min(living, key=lambda one: (one.priority, one.arrival)) if living else None)


def test_the_dead_are_put_away_before_they_are_most_of_what_is_kept() -> None:
    queue: WaitingQueue[str] = WaitingQueue()
    living = []
    for number in range(100):
        one = sequence("x", prompt(16), priority=-number)
        one.arrival = number
        queue.push(one)
        living.append(one)
    for _ in range(80):
        queue.discard(living.pop(0))
        assert len(queue._heap) <= max(16, 2 * len(queue))
    for one in reversed(living):
        assert queue.head() is one
        queue.pop()
    assert queue.head() is None
