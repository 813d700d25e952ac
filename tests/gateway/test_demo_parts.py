"""What the demo's display rests on: the phases, the counts, the recovery, the sparkline, the requests, the gateway's pages."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.configuration import verify
from gateway.demo.business import FIELD_PEAK, TYPES, BusinessType, RequestBodies
from gateway.demo.configuration import settings_from
from gateway.demo.figures import HISTORY_SECONDS, WINDOW_SECONDS, Ending, RowFigures, Span
from gateway.demo.fleet import NOMINAL_SHARE, NOMINAL_TIME_SCALE, TIME_SCALES, time_scale
from gateway.demo.phases import (
    AFTER,
    BURST,
    CALM,
    LAST,
    OUTAGE,
    SHOW_SECONDS,
    STEADY_SECONDS,
    course,
    recovery_seconds,
)
from gateway.demo.scrape import read_page, read_waiting
from gateway.demo.sparkline import buckets, mark, seconds_per_mark, sparkline
from gateway.demo.view import refusals, share
from gateway.emulator.chat_template import render
from gateway.emulator.tokens import read_text


def test_the_show_is_calm_then_a_burst_then_calm_in_less_than_a_minute() -> None:
    show = course(None)
    assert [show.at(second) for second in (-1.0, 0.0, 9.9, 10.0, 21.9, 22.0, 36.0)] == [
        *(CALM, CALM, CALM, BURST, BURST, AFTER, OUTAGE)
    ]
    assert show.at(1e6) == LAST
    assert (show.start_of("burst"), show.burst_end) == (10.0, 22.0)
    assert SHOW_SECONDS < 60
    assert BURST.factor == 2.0
    assert max(CALM.factor, AFTER.factor, OUTAGE.factor, LAST.factor) < 1.0


@given(st.floats(0.01, SHOW_SECONDS))
def test_a_short_run_has_every_phase(seconds: float) -> None:
    squeezed = course(seconds)
    assert sum(phase.seconds for phase in squeezed.phases) == pytest.approx(seconds)
    assert [phase.name for phase in squeezed.phases] == [phase.name for phase in course(None).phases]
    assert course(SHOW_SECONDS + 1) == course(None)


def _seconds(*shares: float) -> dict[int, Span]:
    return {
        second: Span(sent=100, inside=round(100 * inside), endings=Counter({Ending.ANSWERED: 100}))
        for second, inside in enumerate(shares)
    }


def test_the_recovery_ends_with_the_first_second_from_which_on_nearly_all_is_in_time() -> None:
    shares = (0.4, 0.4, 0.5, 0.95, 1.0, 0.99, 0.99, 1.0)
    assert recovery_seconds(_seconds(*shares), 2.0, 8.0) == 2
    assert recovery_seconds(_seconds(*shares[:6]), 2.0, 6.0) is None
    assert recovery_seconds(_seconds(0.4, 0.4, 1.0, 1.0, 1.0), 2.0, 5.0) == 0


def test_a_recovery_is_not_claimed_while_requests_are_under_way() -> None:
    seconds = _seconds(*[1.0] * STEADY_SECONDS)
    seconds[1].sent += 1
    assert recovery_seconds(seconds, 0.0, 9.0) is None
    assert recovery_seconds({}, 0.0, 9.0) is None


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_higher_share_has_no_lower_mark(one: float, other: float) -> None:
    assert mark(min(one, other)) <= mark(max(one, other))


def test_a_full_block_means_nearly_all() -> None:
    assert sparkline([None, 0.0, 0.5, 0.98, 0.99, 1.0]) == " ▁▄▇██"


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 60))
def test_buckets_follow_each_other_up_to_the_last_second(last: int, size: int, marks: int) -> None:
    made = buckets(last, size, marks)
    assert 1 <= len(made) <= marks
    assert last in made[-1]
    assert all(one.stop == other.start for one, other in pairwise(made))
    assert all(bucket.start % size == 0 and len(bucket) == size for bucket in made)
    assert made == buckets(last // size * size, size, marks)


def test_the_show_fits_the_marks() -> None:
    assert [seconds_per_mark(48.0, marks) for marks in (1, 15, 16, 48, 60)] == [48, 4, 3, 1, 1]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_prompts_have_the_lengths_and_the_words_of_their_business_type(kind: BusinessType) -> None:
    bodies = RequestBodies(kind, Random(1))
    shortest, longest = kind.prompt_tokens
    for _ in range(200):
        body = orjson.loads(bodies.draw())
        prompt = render(body["messages"], [])
        assert shortest <= read_text(prompt).tokens <= longest
        assert body["stream"] is True
        assert kind.answer_tokens[0] <= body["max_tokens"] <= kind.answer_tokens[1]
        named = [one for one in TYPES if any(word in prompt.lower() for word in one.keywords)]
        assert named == [kind]


def test_one_seed_draws_one_sequence_of_requests() -> None:
    def drawn(seed: int) -> list[bytes]:
        bodies = RequestBodies(TYPES[0], Random(seed))
        return [bodies.draw() for _ in range(20)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@given(st.lists(st.integers(0, 5000), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_nearest_rank(first_bytes_ms: list[int], part: float) -> None:
    span = Span()
    span.first_bytes_ms.update(first_bytes_ms)
    percentile = span.percentile_ms(part)
    assert percentile is not None
    not_above = sum(first_byte <= percentile for first_byte in first_bytes_ms)
    below = sum(first_byte < percentile for first_byte in first_bytes_ms)
    assert below < part * len(first_bytes_ms) <= not_above


def test_only_answers_in_time_are_inside_the_target() -> None:
    row = RowFigures()
    for _ in range(4):
        row.sent(5.5)
    row.answered(5.5, 0.3, 300)
    row.answered(5.5, 0.3001, 300)
    row.refused(5.5, "deadline", 2)
    row.failed(5.5)
    assert row.whole.inside_share == 0.25
    assert row.whole.percentile_ms(1.0) == 301
    assert share(row.whole.inside_share) == "25 %"
    assert share(0.9999) == "99.9 %"


def test_a_request_belongs_to_the_second_in_which_it_was_due() -> None:
    row = RowFigures()
    row.sent(5.9)
    row.sent(6.1)
    row.answered(6.1, 0.1, 300)
    row.refused(5.9, "overloaded", 1)
    assert (row.by_second[5].inside_share, row.by_second[6].inside_share) == (0.0, 1.0)
    assert row.within(range(4, 8)).inside_share == 0.5


def test_the_recent_figures_are_those_of_the_last_whole_seconds() -> None:
    row = RowFigures()
    for tenth in range(300):
        row.sent(100 + tenth / 10)
    assert row.recent(129.95).sent == 10 * WINDOW_SECONDS
    assert row.recent(150.0) == Span()


def test_the_seconds_of_an_endless_run_are_bounded() -> None:
    row = RowFigures()
    for second in range(3 * HISTORY_SECONDS):
        row.sent(second)
    row.failed(0.0)
    assert len(row.by_second) == HISTORY_SECONDS
    assert (row.whole.sent, row.whole.ended) == (3 * HISTORY_SECONDS, 1)


def test_refusals_are_told_by_reason_with_the_times_to_stay_away() -> None:
    row = RowFigures()
    assert refusals(row.whole) == "none"
    for number, reason in enumerate(("deadline", "overloaded", "overloaded", "overloaded")):
        row.refused(0.0, reason, 1 + number % 3)
    assert refusals(row.whole) == "overloaded 3, deadline 1; Retry-After 1-3 s"
    for reason in ("a", "b"):
        row.refused(0.0, reason, None)
    assert refusals(row.whole) == "overloaded 3, deadline 1, a 1, others 1; Retry-After 1-3 s"


def test_engines_are_as_fast_as_the_load_asks_for() -> None:
    assert time_scale(NOMINAL_SHARE) == NOMINAL_TIME_SCALE
    assert time_scale(2 * NOMINAL_SHARE) == NOMINAL_TIME_SCALE / 2
    assert (time_scale(1e-9), time_scale(1e9)) == (max(TIME_SCALES), min(TIME_SCALES))


def test_the_nominal_load_is_what_the_fleet_is_said_to_answer() -> None:
    assert math.isclose(NOMINAL_SHARE * FIELD_PEAK, 80.0)


def test_the_configuration_satisfies_the_rules_of_a_file() -> None:
    pools = [
        {"name": name, "window": window, "backends": [(f"{name}-1", f"unix:///tmp/{name}")]}
        for name, window in (("high-batch", 8), ("low-latency", 4))
    ]
    settings = settings_from({"port": 0, "redis_url": "", "pools": pools})
    verify(settings, "demo")
    assert [pool.window.max for pool in settings.pools if pool.window is not None] == [8, 4]


def test_the_gateway_s_pages_are_read_by_backend_and_flow() -> None:
    state = read_page(
        "# TYPE headrace_backend_up gauge\n"
        'headrace_backend_up{backend="a",pool="p"} 1.0\n'
        'headrace_backend_up{backend="b",pool="p"} 0.0\n'
        'headrace_backend_in_flight{backend="a",pool="p"} 3.0\n'
        'headrace_retries_total{backend="a"} 2.0\n'
        'headrace_requests_unknown{backend="a"} 9.0\n'
    )
    assert state.up == {"a": True, "b": False}
    assert (state.in_flight["a"], state.moved_here["a"]) == (3, 2)
    flows = [
        {"lane": "interactive", "tenant": tenant, "business": "loan", "waiting": 2} for tenant in ("a", "b")
    ]
    assert read_waiting(orjson.dumps({"flows": flows}).decode()) == {("interactive", "loan"): 4}
