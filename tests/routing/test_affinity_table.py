"""What the affinity table remembers: bounded, the least recently used forgotten first, the cold part replaced in place."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.terms import BackendId, PoolName
from routing.affinity_table import MOVED_AT_ONCE, STEP, AffinityTable
from routing.backend import Backend, BackendPlan
from routing.cold_prefixes import ColdPrefixes
from routing.homes import Home
from routing.hot_prefixes import MAX_HOMES, Gone, HotPrefixes

FINGERPRINTS = st.integers(1, 40)


def used(prefixes: HotPrefixes, fingerprint: int, now: float) -> int | None:
    """As the table uses one; the fingerprint of whoever had to go."""
    if prefixes.use(fingerprint, 1, 0, now):
        return None
    gone = prefixes.add(fingerprint, [(1, 0)], now)
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
        if prefixes.find(fingerprint, now):
            assert now - last[fingerprint] <= 5.0
        used(prefixes, fingerprint, now)
        last[fingerprint] = prefixes.shown(prefixes.find(fingerprint, now)).used_at
        assert now - last[fingerprint] < 0.5
    assert not any(prefixes.find(fingerprint, now + 5.1) for fingerprint in last)
    assert len(prefixes) <= 20


def test_a_slot_whose_prefix_has_expired_goes_to_the_next_that_collides() -> None:
    prefixes = HotPrefixes(slots=4, capacity=5)
    prefixes.lifetime_seconds = 5.0
    used(prefixes, 1, 0.0)
    used(prefixes, 5, 6.0)
    assert (len(prefixes), prefixes.collided) == (1, 0)
    used(prefixes, 9, 7.0)
    assert (len(prefixes), prefixes.collided) == (2, 1)


def test_what_has_expired_is_forgotten_when_there_is_no_room_for_it() -> None:
    prefixes = HotPrefixes(slots=1, capacity=3)
    prefixes.lifetime_seconds = 5.0
    used(prefixes, 1, 0.0)
    used(prefixes, 2, 0.0)
    used(prefixes, 1, 4.0)
    used(prefixes, 3, 4.0)
    assert used(prefixes, 4, 6.0) is None, "2 has expired"
    assert {one.fingerprint for one in prefixes} == {1, 3, 4}
    assert used(prefixes, 5, 6.0) == 3


def test_rows_are_used_again() -> None:
    prefixes = HotPrefixes(slots=2, capacity=4)
    prefixes.lifetime_seconds = 5.0
    for step in range(1, 100):
        for fingerprint in range(step, step + 6):
            used(prefixes, fingerprint, float(step))
        assert all(prefixes.find(fingerprint, step + 6.0) == 0 for fingerprint in range(step, step + 6))
        assert len(prefixes) == 0
        used(prefixes, step + 1, step + 6.0)
        [one] = prefixes
        assert (one.fingerprint, one.homes, one.uses) == (step + 1, [(1, 0)], 1)
        assert prefixes.find(step + 1, step + 20.0) == 0
    assert max(prefixes.find(prefix, 0.0) for prefix in range(200)) == 0
    prefixes.add(1, [(1, 0)], 0.0)
    assert prefixes.find(1, 0.0) <= 5


def test_a_prefix_has_its_last_few_homes() -> None:
    prefixes = HotPrefixes(slots=4, capacity=9)
    prefixes.add(1, [(1, 10)], 0.0)
    row = prefixes.find(1, 0.0)
    prefixes.use(1, 1, 20, 1.0)
    assert prefixes.homes(row) == [(1, 20)]
    for home in range(2, 9):
        prefixes.use(1, home, 30, 2.0)
    assert prefixes.homes(row) == [(5, 30), (6, 30), (7, 30), (8, 30)]
    assert len(prefixes.homes(row)) == MAX_HOMES
    assert prefixes.shown(row)[2:] == (9, 2.0)


def test_the_home_of_the_last_use_stays_and_is_what_is_left_of_a_prefix_that_goes() -> None:
    prefixes = HotPrefixes(slots=1, capacity=2)
    prefixes.add(1, [(9, 9)], 0.0)
    prefixes.add(2, [(1, 10)], 0.0)
    row = prefixes.find(2, 0.0)
    for home in (2, 3, 4, 1):
        prefixes.use(2, home, 10 * home, 2.0)
    assert prefixes.homes(row) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    prefixes.use(2, 5, 50, 3.0)
    assert prefixes.homes(row) == [(1, 10), (3, 30), (4, 40), (5, 50)]
    prefixes.use(2, 3, 31, 4.0)
    assert prefixes.add(3, [(1, 1)], 5.0) == Gone(2, 3, 31)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=2000))
def test_the_most_used_are_found_among_all(uses: list[int]) -> None:
    prefixes = HotPrefixes(slots=4, capacity=3000)
    for fingerprint, count in enumerate(uses, 1):
        prefixes.add(fingerprint, [(1, 0)], 0.0)
        for step in range(count):
            prefixes.use(fingerprint, 1, 0, step + 1.0)
    shown = prefixes.most_used(20)
    assert [one.uses for one in shown] == sorted((count + 1 for count in uses), reverse=True)[:20]
    assert all(uses[one.fingerprint - 1] + 1 == one.uses for one in shown)


# --- the cold part ------------------------------------------------------------------------------------------------------------


def place(fingerprint: int, capacity: int) -> int:
    """Linear hashing."""
    bits = capacity.bit_length()
    wide = fingerprint % (1 << bits)
    return wide if wide < capacity else fingerprint % (1 << bits - 1)


PUTS = st.lists(st.tuples(FINGERPRINTS, st.integers(1, 5)))


@given(PUTS, st.integers(1, 20))
def test_the_last_to_come_to_a_place_has_it(puts: list[tuple[int, int]], capacity: int) -> None:
    cold = ColdPrefixes(capacity)
    places: dict[int, tuple[int, int]] = {}
    for fingerprint, home in puts:
        cold.put(fingerprint, home, 10 * home)
        places[place(fingerprint, capacity)] = fingerprint, home
    assert cold.used == len(places)
    for fingerprint in range(1, 41):
        kept, home = places.get(place(fingerprint, capacity), (0, 0))
        assert cold.get(fingerprint) == ((home, 10 * home) if kept == fingerprint else None)


@given(PUTS, st.integers(1, 20), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_another_size_keeps_what_finds_a_place(
    puts: list[tuple[int, int]], capacity: int, sizes: list[int]
) -> None:
    cold = ColdPrefixes(capacity)
    for fingerprint, home in puts:
        cold.put(fingerprint, home, 10 * home)
    for size in sizes:
        before = {one: found for one in range(1, 41) if (found := cold.get(one))}
        cold.resize(size)
        after = {one: found for one in range(1, 41) if (found := cold.get(one))}
        assert after.items() <= before.items()
        assert cold.capacity == size
        assert len(after) == cold.used == len({place(one, size) for one in before})


@given(PUTS, st.lists(FINGERPRINTS))
def test_what_is_taken_is_not_there_any_more(puts: list[tuple[int, int]], taken: list[int]) -> None:
    cold = ColdPrefixes(7)
    for fingerprint, home in puts:
        cold.put(fingerprint, home, 10 * home)
    for fingerprint in taken:
        before, used = cold.get(fingerprint), cold.used
        assert cold.take(fingerprint) == before
        assert cold.get(fingerprint) is None
        assert cold.used == used - (before is not None)


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
    assert (len(table.hot), table.cold.used) == (1, 0), "it has one entry"


def test_a_hot_prefix_is_forgotten_after_its_lifetime_and_no_older_home_comes_back() -> None:
    table = AffinityTable(256, 0.7)
    table.hot.lifetime_seconds = 30.0
    a, b = homes(2)
    table.sent([1], 0, a, 0.0)
    table.sent([1], 1, a, 1.0)
    table.sent([1], 1, b, 2.0)
    assert known(table, 1, 32.0) == [1, 2]
    assert known(table, 1, 32.1) == []
    assert (len(table.hot), table.cold.used) == (0, 0)


def test_what_is_no_longer_as_frequent_stays_hot_while_it_is_used() -> None:
    table = AffinityTable(256, 0.7)
    table.hot.lifetime_seconds = 30.0
    [home] = homes(1)
    table.sent([1], 1, home, 0.0)
    for step in range(1, 5):
        table.sent([1], 0, home, 29.0 * step)
    assert table.is_hot(1, 29.0 * 4 + 30.0)
    assert table.cold.used == 0


def test_what_has_expired_and_then_finds_no_room_is_forgotten() -> None:
    table = AffinityTable(64, 0.7)
    table.hot.lifetime_seconds = 30.0
    [home] = homes(1)
    second = table.hot.capacity - table.hot.slots
    early = [16 * number for number in range(1, second + 2)]
    for fingerprint in early:
        table.sent([fingerprint], 1, home, 0.0)
    assert table.hot.collided == second
    table.sent(early[:1], 1, home, 20.0)  # it keeps its slot
    for number in range(200, 200 + second):
        table.sent([16 * number], 1, home, 31.0)
    assert table.cold.used == 0
    assert [one for one in early if known(table, one, 31.0)] == early[:1]


@given(
    st.lists(st.tuples(st.lists(FINGERPRINTS, max_size=8), st.integers(0, 8), st.floats(0, 4))),
    st.lists(st.floats(0, 1), max_size=5),
)
def test_a_prefix_has_one_entry(sent: list[tuple[list[int], int, float]], moves: list[float]) -> None:
    table = AffinityTable(20, 0.7)
    table.hot.lifetime_seconds = 5.0
    [home] = homes(1)
    now = 0.0
    for number, (hashes, hot, pause) in enumerate(sent):
        now += pause
        if moves:
            table.share_out(moves[number % len(moves)])
        table.sent(hashes, hot, home, now)
        entries = [one.fingerprint for one in table.hot]
        assert len(set(entries)) == len(entries)
        assert not any(table.cold.get(one) for one in entries)


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
        assert len(list(table.hot)) == len(table.hot) <= table.hot.capacity
        assert table.cold.used <= table.cold.capacity
        assert table.hot.capacity + table.cold.capacity == 20


def test_the_share_of_the_hot_part_moves_in_steps_and_loses_nothing_that_fits() -> None:
    table = AffinityTable(1000, 0.7)
    [home] = homes(1)
    table.share_out(0.7 + 0.9 * STEP)
    for fingerprint in range(1, 100):
        table.sent([fingerprint], 0, home, 0.0)
    assert (table.hot.capacity, table.cold.capacity) == (700, 300)
    table.share_out(0.8)
    for fingerprint in range(1, 10):
        table.sent([fingerprint], 0, home, 0.0)
    assert (table.hot.capacity, table.cold.capacity) == (800, 200)
    assert all(known(table, fingerprint) == [1] for fingerprint in range(1, 100))


def test_what_moves_with_the_share_moves_a_little_with_each_request_that_is_sent() -> None:
    table = AffinityTable(10_000, 0.9)
    [home] = homes(1)
    for fingerprint in range(9_000):
        table.sent([fingerprint << 20 | fingerprint], 1, home, 0.0)
    table.share_out(0.7)
    assert table.hot.capacity == 9000, "nothing yet"
    for step in range(1, 5):
        held = len(table.hot)
        table.sent([], 0, home, 1.0)
        assert table.hot.capacity == 9000 - step * MOVED_AT_ONCE
        assert held - MOVED_AT_ONCE <= len(table.hot) <= table.hot.capacity
        assert table.hot.capacity + table.cold.capacity == 10_000
    for _ in range(2000 // MOVED_AT_ONCE):
        table.sent([], 0, home, 1.0)
    assert (table.hot.capacity, table.cold.capacity) == (7000, 3000)


@pytest.mark.parametrize("hot_share", [0.0, 0.1, 0.2])
def test_the_hot_part_never_has_less_than_its_first_level(hot_share: float) -> None:
    table = AffinityTable(1000, hot_share)
    assert 200 <= table.hot.capacity == table.hot.slots <= 400
    [home] = homes(1)
    table.share_out(1.0)
    table.share_out(hot_share)
    for _ in range(1000 // MOVED_AT_ONCE + 1):
        table.sent([], 0, home, 0.0)
    assert table.hot.capacity == table.hot.slots


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


def test_a_prefix_takes_no_more_than_is_said_when_it_has_all_the_homes_it_may_have() -> None:
    count = 4096
    chance = Random(1)
    of = homes(MAX_HOMES + 1)
    for number, home in enumerate(of):
        home.written = 10**9 * (number + 1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        table = AffinityTable(count, 0.7)
        for step in range(count + count // 2):
            fingerprint = chance.getrandbits(64)
            for home in of:
                home.written += 1
                table.sent([fingerprint], 1, home, float(step))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert all(len(one.homes) == MAX_HOMES for one in table.hot)
    assert table.hot.collided == table.hot.capacity - table.hot.slots
    assert grown <= 80 * table.hot.slots + 350 * table.hot.collided + 23 * table.cold.capacity


@pytest.mark.parametrize("max_prefixes", [64, 65, 1000, 131_072])
def test_all_of_the_size_is_shared_out(max_prefixes: int) -> None:
    table = AffinityTable(max_prefixes, 0.7)
    assert table.hot.capacity + table.cold.capacity == max_prefixes
    assert table.hot.capacity == int(0.7 * max_prefixes)
