"""The KV cache: sharing, least-recently-used eviction, and that its sums are right after any sequence of
events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.blocks import BlockPool


def held(pool: BlockPool, hashes: list[int]) -> int:
    return pool.hits(hashes, len(hashes))


def test_equal_blocks_are_held_once_and_stay_until_the_last_holder_leaves() -> None:
    pool = BlockPool(10)
    assert pool.acquire([1, 2, 3], 1)
    assert pool.acquire([1, 2, 4], 1)
    assert pool.used == 6
    pool.release([1, 2, 3], 1, 3)
    assert pool.used == 4
    assert held(pool, [1, 2, 3]) == 3


def test_the_least_recently_used_prefix_is_evicted_first_from_its_tail() -> None:
    pool = BlockPool(6)
    for prefix in ([1, 2, 3], [11, 12, 13]):
        assert pool.acquire(prefix, 0)
        pool.release(prefix, 0, 3)
    assert pool.acquire([1, 2, 3], 0)  # used again, so the other one is older now
    pool.release([1, 2, 3], 0, 3)
    assert pool.acquire([21, 22], 0)
    assert held(pool, [11, 12, 13]) == 1
    assert held(pool, [1, 2, 3]) == 3


def test_a_request_that_does_not_fit_takes_nothing() -> None:
    pool = BlockPool(4)
    assert pool.acquire([1, 2], 1)
    assert not pool.acquire([1, 2, 3], 1)
    assert pool.used == 3
    assert pool.acquire([1, 2, 3], 0)
    assert not pool.grow()


def test_a_hit_ends_at_the_first_missing_block() -> None:
    pool = BlockPool(8)
    assert pool.acquire([1, 3], 0)
    assert pool.hits([1, 2, 3], 3) == 1
    assert pool.hits([1, 3], 1) == 1


@given(
    capacity=st.integers(1, 12),
    events=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3), st.integers(0, 6)), max_size=40
    ),
)
def test_used_and_remembered_blocks_never_exceed_the_capacity_and_all_come_back(
    capacity: int, events: list[tuple[int, int, int, int]]
) -> None:
    pool = BlockPool(capacity)
    holders: list[tuple[list[int], int, int]] = []
    for family, length, private, computed in events:
        hashes = [family * 100 + index for index in range(length)]
        if pool.acquire(hashes, private):
            holders.append((hashes, private, computed))
        elif holders:
            pool.release(*holders.pop(0))
        distinct = {block for hashes, _, _ in holders for block in hashes}
        assert pool.used == len(distinct) + sum(private for _, private, _ in holders) <= capacity
        assert pool.remembered <= capacity
    for holder in holders:
        pool.release(*holder)
    assert pool.used == 0
