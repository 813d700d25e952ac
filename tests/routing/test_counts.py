"""What is counted of waits and of batches."""

from __future__ import annotations

from math import inf

from policies.terms import PoolName
from routing.counts import Counts

P = PoolName("p")


def test_the_error_of_a_predicted_wait_is_counted_where_one_was_predicted() -> None:
    counts = Counts()
    counts.waited(2.0, 3.5)
    counts.waited(inf, 3.5)
    assert (counts.wait_errors.sum, sum(counts.wait_errors.counts)) == (1.5, 1)


def test_batches_are_counted_by_pool_with_the_places_that_they_had() -> None:
    counts = Counts()
    counts.gathered(P, 3, 4)
    counts.gathered(P, 1, 4)
    counts.gathered(PoolName("q"), 5, 5)
    assert (counts.batches[P].sum, counts.batch_places[P]) == (4, 8)
    assert (counts.batches[PoolName("q")].sum, counts.batch_places[PoolName("q")]) == (5, 5)
