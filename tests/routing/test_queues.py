"""The lines of waiting requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.terms import UNTAGGED, TicketId
from routing.decision import Ticket
from routing.queues import Queues
from tests.routing.reachable import entries

MODELS = st.sampled_from(["a", "b", ""])


def ticket(number: int, model: str = "a") -> Ticket:
    return Ticket(TicketId(number), model, UNTAGGED, float(number))


@given(st.lists(st.tuples(st.booleans(), MODELS, st.integers(0, 50))))
def test_each_line_is_first_in_first_out_and_leaves_nothing_behind(
    steps: list[tuple[bool, str, int]],
) -> None:
    queues = Queues()
    empty = entries(queues)
    waiting: list[Ticket] = []
    for number, (pushes, model, choice) in enumerate(steps):
        if pushes:
            waiting.append(ticket(number, model))
            queues.push(waiting[-1])
        elif waiting:
            gone = waiting.pop(choice % len(waiting))
            assert queues.remove(gone)
            assert not queues.remove(gone)
        firsts = {model: one for one in reversed(waiting) for model in [one.model]}
        assert {head.model: head for head in queues.heads()} == firsts
        assert len(queues) == len(waiting)
        for name in ("a", "b", ""):
            assert queues.head(name) is firsts.get(name)
            assert queues.has_line(name) == (name in firsts)
    for one in waiting:
        queues.remove(one)
    assert entries(queues) == empty


def test_a_ticket_that_never_waited_is_not_removed() -> None:
    queues = Queues()
    assert not queues.remove(ticket(1))
    queues.push(ticket(2))
    assert not queues.remove(ticket(1))
    assert len(queues) == 1
