"""The order of backends for a key: equal everywhere, evenly spread, and hardly another one when a backend comes or goes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from routing.rendezvous import BUCKETS, TRIED, Rendezvous

NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12, unique=True)
KEYS = st.integers(0, 2**64 - 1)


def of(names: list[str]) -> Rendezvous[str]:
    return Rendezvous([(name, name) for name in names])


@given(NAMES, KEYS)
def test_it_depends_on_the_names_alone_and_not_on_their_order(names: list[str], key: int) -> None:
    found = of(names).order(key)
    assert found == of(names[::-1]).order(key)
    assert len(found) == len(set(found)) == min(TRIED, len(names))


@given(NAMES, KEYS, st.integers(0, 11))
def test_a_key_moves_only_where_its_backend_left(names: list[str], key: int, gone: int) -> None:
    left = names[gone % len(names)]
    rest = [name for name in names if name != left]
    if rest:
        before, after = of(names).order(key), of(rest).order(key)
        assert after[0] == next(name for name in (*before, after[0]) if name != left)


def test_keys_are_spread_evenly() -> None:
    order = of([f"10.0.0.{number}:8000" for number in range(8)])
    counts = Counter(order.order(key)[0] for key in range(BUCKETS))
    assert len(counts) == 8
    assert all(0.7 * BUCKETS / 8 < count < 1.3 * BUCKETS / 8 for count in counts.values())


def test_what_is_kept_is_bounded_by_the_buckets() -> None:
    order = of(["a", "b"])
    assert order.order(5) == order.order(5 + BUCKETS)
