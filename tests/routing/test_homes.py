"""Backends as the affinity table knows them: by numbers that end with their engine's life, and with what their caches hold."""

from __future__ import annotations

from policies.dialects import EngineFlags, EngineReport
from policies.terms import BackendId, PoolName
from routing.backend import Backend, BackendPlan
from routing.homes import FOUND_SHARE, SAMPLE_TOKENS, Homes


def backend(name: str = "a") -> Backend:
    return Backend(BackendPlan(BackendId(name), PoolName("p")))


def test_a_backend_has_one_number_until_its_engine_restarts() -> None:
    homes, one, other = Homes(), backend("a"), backend("b")
    first = homes.of(one)
    assert homes.of(one) is first and homes.get(first.number) is first
    assert homes.of(other).number != first.number
    one.restarted()
    assert homes.get(first.number) is None, "before anybody has asked for its new number"
    second = homes.of(one)
    assert second.number not in (first.number, homes.of(other).number)
    assert homes.get(first.number) is None and homes.get(second.number) is second
    assert homes.get(0) is homes.get(99) is None


def test_what_was_counted_goes_on_over_a_restart_and_what_was_written_does_not() -> None:
    homes, one = Homes(), backend()
    homes.of(one).sent(100.0, 300.0, 10.0)
    homes.of(one).told(100.0, 90)
    one.restarted()
    home = homes.of(one)
    assert (home.predicted_tokens, home.found_tokens, home.written) == (100.0, 90, 0)


def test_only_the_backends_of_a_configuration_are_kept() -> None:
    homes, one, other = Homes(), backend("a"), backend("b")
    numbers = homes.of(one).number, homes.of(other).number
    homes.keep_only([other, backend("c")])
    assert [home.backend for home in homes] == [other]
    assert homes.get(numbers[0]) is None and homes.get(numbers[1]) is not None


def test_a_backend_that_was_retired_does_not_come_back_with_its_last_answer() -> None:
    homes, one = Homes(), backend("a")
    assert homes.known(one) is None
    homes.of(one)
    one.restarted()
    known = homes.known(one)
    assert known is not None and known is homes.of(one)
    homes.keep_only([backend("a")])
    assert homes.known(one) is None and list(homes) == []


def test_what_was_not_looked_into_pushes_out_as_much() -> None:
    one = backend()
    one.kv_tokens = 6000
    home = Homes().of(one)
    home.sent(0.0, 1000.0, 0.0)
    written = home.written
    home.wrote(6000.0)
    assert home.holds(written)
    home.wrote(1.0)
    assert not home.holds(written)


def test_where_usage_says_nothing_what_was_found_is_the_share_that_the_counters_found() -> None:
    home = Homes().of(backend())
    home.sent(500.0, 1000.0, 10.0)
    home.told(500.0, 0)
    none = EngineReport(prefix_hits=0, prefix_queries=0)
    home.counted(None, none)
    home.counted(none, none)
    assert (home.predicted_tokens, home.found_tokens) == (500.0, 0)
    home.counted(none, EngineReport(prefix_hits=950, prefix_queries=1000))
    assert home.found_tokens == 950
    home.counted(
        EngineReport(prefix_hits=950, prefix_queries=1000),
        EngineReport(prefix_hits=1900, prefix_queries=2000),
    )
    assert home.found_tokens == 950, "nothing of it was sent from here"


def test_where_usage_tells_the_counters_add_nothing() -> None:
    home = Homes().of(backend())
    home.sent(500.0, 1000.0, 10.0)
    home.told(500.0, 400)
    home.counted(
        EngineReport(prefix_hits=0, prefix_queries=0), EngineReport(prefix_hits=950, prefix_queries=1000)
    )
    assert (home.predicted_tokens, home.found_tokens) == (500.0, 400)


def test_a_cache_holds_what_was_asked_for_since_as_much_as_fits() -> None:
    one = backend()
    home = Homes().of(one)
    home.sent(0.0, 1000.0, 0.0)
    written = home.written
    home.sent(0.0, 5e9, 0.0)
    assert home.holds(written), "nothing says how much it holds"
    one.kv_tokens = 6000
    assert not home.holds(written)
    written = home.written
    home.sent(0.0, 5900.0, 100.0)
    assert home.holds(written)
    home.sent(1000.0, 1000.0, 0.0)
    assert home.written == written + 6000 + round(FOUND_SHARE * 1000)
    assert not home.holds(written)


def test_small_samples_of_usage_are_gathered_and_tell_of_trust_together() -> None:
    one = backend()
    one.flags = EngineFlags(tells_cached_tokens=True)
    home = Homes().of(one)
    count = round(100_000 / SAMPLE_TOKENS)
    for _ in range(count):
        assert home.trust == 1.0 or home.predicted_tokens > 50_000
        for _ in range(10):
            home.sent(SAMPLE_TOKENS / 10, SAMPLE_TOKENS / 5, 1.0)
            home.told(SAMPLE_TOKENS / 10, round(SAMPLE_TOKENS / 40))
    assert 0.2 < home.trust < 0.3


def test_reports_tell_of_trust_where_usage_says_nothing() -> None:
    home = Homes().of(backend())
    before = EngineReport(prefix_hits=0, prefix_queries=0)
    for number in range(1, 40):
        for _ in range(5):
            home.sent(2000.0, 4000.0, 1.0)
            home.told(2000.0, 0)
        after = EngineReport(prefix_hits=1000 * number, prefix_queries=20_000 * number)
        home.counted(before, after)
        before = after
    assert home.trust < 0.3
