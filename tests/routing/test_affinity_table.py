"""What the affinity table remembers: bounded, the least recently used forgotten first, the cold part replaced in place."""

from __future__ import annotations

import sys
from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.terms import BackendId, PoolName
from routing.affinity_table import STEP, AffinityTable
from routing.backend import Backend, BackendPlan
from routing.cold_prefixes import ColdPrefixes
from routing.homes import Home
from routing.hot_prefixes import MAX_HOMES, HotPrefix, HotPrefixes

FINGERPRINTS = st.integers(1, 40)


def used(prefixes: HotPrefixes, fingerprint: int, now: float) -> int | None:
    """As the table uses one; the fingerprint of whoever had to go."""
    found = prefixes.get(fingerprint, now)
    if found is not None:
        found.use(1, 0, now)
        return None
    gone = prefixes.add(HotPrefix(fingerprint, [(1, 0)], now))
    return gone.fingerprint if gone is not None else None


# --- the hot part -------------------------------------------------------------------------------------------------------------


@given(st.lists(FINGERPRINTS, max_size=200))
def test_of_the_hot_prefixes_that_collide_the_least_recently_used_goes(uses: list[int]) -> None:
    prefixes = HotPrefixes(slots=4, capacity=9)
    slots: dict[int, int] = {}
    second: OrderedDict[int, None] = OrderedDict()
    for now, fingerprint in enumerate(uses):
        gone = used(prefixes, fingerprint, float(now))
        expected = None
        if slots.setdefault(fingerprint & 3, fingerprint) != fingerprint:
            second[fingerprint] = None
            second.move_to_end(fingerprint)
            if len(second) > 5:
                expected = second.popitem(last=False)[0]
        assert gone == expected
        assert len(prefixes) == len(slots) + len(second) <= 9
    assert {one.fingerprint for one in prefixes} == {*slots.values(), *second}


@given(st.lists(st.tuples(FINGERPRINTS, st.floats(0, 4)), max_size=100))
def test_nothing_is_found_after_its_lifetime(uses: list[tuple[int, float]]) -> None:
    prefixes = HotPrefixes(slots=4, capacity=20)
    prefixes.lifetime_seconds = 5.0
    now, last = 0.0, dict[int, float]()
    for fingerprint, pause in uses:
        now += pause
        if prefixes.get(fingerprint, now) is not None:
            assert now - last[fingerprint] <= 5.0
        used(prefixes, fingerprint, now)
        last[fingerprint] = now
    assert not any(prefixes.get(fingerprint, now + 5.1) for fingerprint in last)
    assert len(prefixes) <= 20


def test_a_slot_whose_prefix_has_expired_goes_to_the_next_that_collides() -> None:
    prefixes = HotPrefixes(slots=4, capacity=5)
    prefixes.lifetime_seconds = 5.0
    used(prefixes, 1, 0.0)
    used(prefixes, 5, 6.0)
    assert (len(prefixes), prefixes.collided) == (1, 0)
    used(prefixes, 9, 7.0)
    assert (len(prefixes), prefixes.collided) == (2, 1)


def test_a_prefix_has_its_last_few_homes() -> None:
    prefix = HotPrefix(1, [(1, 10)], 0.0)
    prefix.use(1, 20, 1.0)
    assert prefix.homes == [(1, 20)]
    for home in range(2, 9):
        prefix.use(home, 30, 2.0)
    assert prefix.homes == [(5, 30), (6, 30), (7, 30), (8, 30)]
    assert len(prefix.homes) == MAX_HOMES
    assert (prefix.uses, prefix.used_at) == (9, 2.0)


# --- the cold part ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(FINGERPRINTS, st.integers(1, 5))))
def test_the_last_to_come_to_a_place_has_it(puts: list[tuple[int, int]]) -> None:
    cold = ColdPrefixes(7)
    places: dict[int, tuple[int, int]] = {}
    for fingerprint, home in puts:
        cold.put(fingerprint, home, 10 * home)
        places[fingerprint % 7] = fingerprint, home
    assert cold.used == len(places)
    for fingerprint in range(1, 41):
        kept, home = places.get(fingerprint % 7, (0, 0))
        assert cold.get(fingerprint) == ((home, 10 * home) if kept == fingerprint else None)


@given(st.lists(st.tuples(FINGERPRINTS, st.integers(1, 5))), st.integers(1, 20))
def test_another_size_keeps_what_finds_a_place(puts: list[tuple[int, int]], capacity: int) -> None:
    cold = ColdPrefixes(7)
    for fingerprint, home in puts:
        cold.put(fingerprint, home, 10 * home)
    other = cold.resized(capacity)
    kept = {fingerprint for fingerprint in range(1, 41) if other.get(fingerprint)}
    assert all(other.get(fingerprint) == cold.get(fingerprint) for fingerprint in kept)
    assert len(kept) == other.used == len({one % capacity for one in range(1, 41) if cold.get(one)})


# --- both ---------------------------------------------------------------------------------------------------------------------


def homes(count: int, kv_tokens: int | None = None) -> list[Home]:
    """Of backends whose caches hold so much."""
    backends = [Backend(BackendPlan(BackendId(f"b{number}"), PoolName("p"))) for number in range(count)]
    for backend in backends:
        backend.kv_tokens = kv_tokens
    return [Home(backend, number) for number, backend in enumerate(backends, 1)]


def known(table: AffinityTable, fingerprint: int, now: float = 0.0) -> list[int]:
    return [number for number, _ in table.homes(fingerprint, now)]


def test_what_was_sent_is_known_from_then_on_as_deep_as_it_went_there() -> None:
    table = AffinityTable(256, 0.7)
    a, b = homes(2)
    table.sent([1, 2, 3], 2, a, 0.0)
    assert [table.known(hashes, a, 1.0) for hashes in ([1, 2, 3], [1, 2, 9], [9], [])] == [3, 2, 0, 0]
    assert table.known([1, 2, 3], b, 1.0) == 0
    table.sent([1, 2, 9], 2, a, 2.0)
    table.sent([1, 2, 3], 2, b, 3.0)
    assert [known(table, one, 3.0) for one in (1, 2, 3, 9)] == [[1, 2], [1, 2], [2], [1]]
    assert [table.is_hot(one, 3.0) for one in (1, 2, 3, 9)] == [True, True, False, False]


def test_what_a_cache_has_evicted_since_is_not_known_any_more() -> None:
    table = AffinityTable(256, 0.7)
    [home] = homes(1, kv_tokens=1000)
    home.sent(0.0, 100.0, 0.0)
    table.sent([1, 2], 1, home, 0.0)
    home.sent(0.0, 900.0, 100.0)
    assert table.known([1, 2], home, 0.0) == 2
    table.sent([1], 1, home, 1.0)
    home.sent(0.0, 1.0, 0.0)
    assert table.known([1, 2], home, 1.0) == 1, "the first was used again"
    assert table.known([2], home, 1.0) == 0


def test_what_goes_where_it_went_last_is_written_down_anew_every_half_second() -> None:
    table = AffinityTable(256, 0.7)
    a, b = homes(2, kv_tokens=1000)
    for step in range(50):
        table.sent([1], 1, a, step / 10)
        a.sent(0.0, 100.0, 0.0)
        assert table.known([1], a, step / 10) == 1
    assert table.top(5.0)[0].uses <= 10
    table.sent([1], 1, b, 5.0)
    assert known(table, 1, 5.0) == [1, 2]


def test_a_cold_prefix_that_becomes_hot_keeps_its_home() -> None:
    table = AffinityTable(256, 0.7)
    a, b = homes(2)
    table.sent([1], 0, a, 0.0)
    table.sent([1], 1, b, 1.0)
    assert known(table, 1, 1.0) == [1, 2]


def test_what_the_hot_part_has_no_room_for_goes_on_in_the_cold_one() -> None:
    table = AffinityTable(64, 0.7)
    [home] = homes(1)
    for fingerprint in range(1, 200):
        table.sent([fingerprint * 16], 1, home, float(fingerprint))
    assert len(table.hot) <= table.hot.capacity
    assert any(not table.is_hot(one * 16, 200.0) and known(table, one * 16, 200.0) for one in range(1, 200))


@given(
    st.lists(st.tuples(st.lists(FINGERPRINTS, max_size=8), st.integers(0, 8), st.integers(0, 4))),
    st.lists(st.floats(0, 1), max_size=5),
)
def test_it_never_holds_more_than_it_may(sent: list[tuple[list[int], int, int]], moves: list[float]) -> None:
    table = AffinityTable(20, 0.7)
    of = homes(5)
    for now, (hashes, hot, home) in enumerate(sent):
        table.sent(hashes, hot, of[home], float(now))
        if moves and now % 5 == 0:
            table.share_out(moves[now % len(moves)])
        assert len(table.hot) <= table.hot.capacity
        assert table.cold.used <= table.cold.capacity
        assert table.hot.capacity + table.cold.capacity == 20


def test_the_share_of_the_hot_part_moves_in_steps_and_loses_nothing_that_fits() -> None:
    table = AffinityTable(1000, 0.7)
    [home] = homes(1)
    cold = table.cold
    table.share_out(0.7 + 0.9 * STEP)
    assert table.cold is cold
    for fingerprint in range(1, 100):
        table.sent([fingerprint], 0, home, 0.0)
    table.share_out(0.8)
    assert (table.hot.capacity, table.cold.capacity) == (800, 200)
    assert all(known(table, fingerprint) == [1] for fingerprint in range(1, 100))


def test_the_most_used_prefixes_are_shown_with_how_often_and_how_long_ago() -> None:
    table = AffinityTable(256, 0.7)
    _, home = homes(2)
    for fingerprint in range(1, 60):
        for use in range(fingerprint):
            table.sent([fingerprint], 1, home, float(use))
    top = table.top(61.0)
    assert [one.fingerprint for one in top] == list(range(59, 39, -1))
    assert top[0] == (59, (2,), 59, 3.0)


def test_a_million_prefixes_leave_no_more_than_a_thousand() -> None:
    """Memory is bounded as configured, whatever comes."""
    chance = Random(1)
    table = AffinityTable(1024, 0.7)
    of = homes(8)
    for now in range(100_000):
        hashes = [chance.getrandbits(64) for _ in range(10)]
        table.sent(hashes, chance.randrange(3), of[now % 8], float(now))
        if now % 10_000 == 9_999:
            assert len(table.hot) + table.cold.used <= 1024
            size = sum(sys.getsizeof(one) + sys.getsizeof(one.homes) for one in table.hot)
            assert size <= 1024 * 256


@pytest.mark.parametrize("max_prefixes", [64, 65, 1000, 131_072])
def test_all_of_the_size_is_shared_out(max_prefixes: int) -> None:
    table = AffinityTable(max_prefixes, 0.7)
    assert table.hot.capacity + table.cold.capacity == max_prefixes
    assert table.hot.capacity == int(0.7 * max_prefixes)
