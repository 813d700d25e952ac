"""What the verdicts of a soak rest on: which pairs of endings agree, what explains an error, what stands on the page, and which figures miss their bar."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from gateway.configuration import ConfigurationError, parse
from gateway.record import Outcome
from gateway.sessions.guarded_store import MAX_CALLS
from policies.terms import Refusal
from tests.bench.soak.__main__ import parse as arguments
from tests.bench.soak.configuration import KEYS, files
from tests.bench.soak.explain import RECOVERY_SECONDS, STORE_RECOVERY_SECONDS, is_explained
from tests.bench.soak.ledger import EXAMPLES, End, Fate, Ledger
from tests.bench.soak.page import LEVELS, counters, levels, total
from tests.bench.soak.requests import KINDS, Requests
from tests.bench.soak.run import Found, Resident
from tests.bench.soak.slow_headers import COUNT
from tests.bench.soak.slow_headers import figures as slow_figures
from tests.bench.soak.trouble import STARVED, TROUBLES, Kind, Spans, order
from tests.bench.soak.verdicts import GROWN_MB, STILL_GROWING_MB, figures

_CUT = next(trouble for trouble in TROUBLES if trouble.name == "cut")
_FROZEN = next(trouble for trouble in TROUBLES if trouble.name == "Redis frozen")
_RELOAD = next(trouble for trouble in TROUBLES if trouble.kind is Kind.RELOAD)
_STEP = next(trouble for trouble in TROUBLES if trouble.kind is Kind.CLOCK)


def _fate(end: End = End.ANSWERED, status: int = 200, began: float = 10.0, ended: float = 11.0) -> Fate:
    return Fate("chat, plain", end, status, began, ended)


def _line(
    request_id: str, status: int = 200, outcome: str = "ok", reason: str | None = None, backend: str = "e-1"
) -> bytes:
    record = {
        "request_id": request_id,
        "status": status,
        "outcome": outcome,
        "reason": reason,
        "backend": backend,
    }
    return json.dumps(record).encode()


def _ledger() -> Ledger:
    return Ledger(Spans())


@pytest.mark.parametrize("line_first", [True, False])
def test_a_request_and_its_line_meet_in_either_order_and_are_forgotten(line_first: bool) -> None:
    ledger = _ledger()
    parts: list[Callable[[], None]] = [
        lambda: ledger.gateway_wrote(_line("a"), 11.0),
        lambda: ledger.client_saw("a", _fate()),
    ]
    for part in parts if line_first else parts[::-1]:
        part()
    assert (ledger.without_line, ledger.without_client, ledger.disagreeing.count) == ([], [], 0)
    assert (ledger.lines, ledger.kinds.total(), ledger.outcomes) == (1, 1, {Outcome.OK: 1})


def test_a_client_that_waited_needs_a_line_and_one_that_left_does_not() -> None:
    ledger = _ledger()
    ledger.client_saw("waited", _fate())
    ledger.client_saw("left", _fate(End.LEFT, 0))
    assert ledger.without_line == ["waited"]


def test_a_line_of_nobody_and_a_second_line_are_seen() -> None:
    ledger = _ledger()
    ledger.gateway_wrote(_line("nobody"), 1.0)
    assert ledger.without_client == ["nobody"]
    ledger.gateway_wrote(_line("nobody"), 2.0)
    assert ledger.disagreeing.examples == ["nobody: two lines"]
    ledger.client_saw("a", _fate())
    for _ in range(2):
        ledger.gateway_wrote(_line("a"), 11.0)
    assert ledger.without_client == ["nobody", "a"]


@pytest.mark.parametrize(
    ("fate", "line", "agree"),
    [
        (_fate(), _line("a"), True),
        (_fate(status=404), _line("a", 404, "refused", "unknown_model"), True),
        (_fate(status=404), _line("a", 400, "refused", "bad_request"), False),
        (_fate(), _line("a", 200, "aborted"), False),
        (_fate(), _line("a", 200, "cut"), False),
        (_fate(End.CUT), _line("a", 200, "cut"), True),
        (_fate(End.CUT), _line("a"), False),
        (_fate(End.LOST, 0), _line("a", 0, "aborted"), False),
        (_fate(End.HUNG), _line("a", 0, "aborted"), False),
        (_fate(End.LEFT, 0), _line("a"), True),
        (_fate(End.LEFT, 0), _line("a", 0, "aborted"), True),
    ],
)
def test_what_the_client_saw_and_what_the_line_says_have_to_agree(
    fate: Fate, line: bytes, agree: bool
) -> None:
    ledger = _ledger()
    ledger.client_saw("a", fate)
    ledger.gateway_wrote(line, 11.0)
    assert ledger.disagreeing.count == (not agree)


def test_of_many_faults_the_first_are_shown_and_all_are_counted() -> None:
    ledger = _ledger()
    for number in range(EXAMPLES + 3):
        ledger.client_saw(f"r-{number}", _fate(status=500))
        ledger.gateway_wrote(_line(f"r-{number}", 500, "refused", "internal_error"), 11.0)
    assert (ledger.unexplained.count, len(ledger.unexplained.examples)) == (EXAMPLES + 3, EXAMPLES)
    assert (
        ledger.unexplained.examples[0]
        == "r-0 (chat, plain): internal_error, e-1, 10.00 to 11.00, after no trouble"
    )


def test_lines_that_the_log_gave_up_are_counted() -> None:
    ledger = _ledger()
    ledger.gateway_wrote(b'{"log_records_dropped":3}', 1.0)
    assert (ledger.log_lines_dropped, ledger.lines) == (3, 0)


def test_an_error_is_explained_by_trouble_of_that_very_engine_while_it_lasted() -> None:
    spans = Spans()
    spans.begin(_CUT, "e-1", 10.0).ended = 12.0
    reasons = (None, Refusal.BACKEND_BROKE, Refusal.GAP_TIMEOUT, Refusal.BACKEND_UNREACHABLE)
    for reason in reasons:
        assert is_explained(reason, "e-1", 11.0, 15.0, spans)
        assert is_explained(reason, "e-1", 5.0, 10.0, spans)
        assert not is_explained(reason, "e-1", 5.0, 9.9, spans)
        assert not is_explained(reason, "e-1", 13.5, 15.0, spans)
        assert not is_explained(reason, "e-2", 11.0, 15.0, spans)
        assert not is_explained(reason, "", 11.0, 15.0, spans)


@pytest.mark.parametrize(
    "reason", [Refusal.NO_BACKEND, Refusal.QUEUE_FULL, Refusal.QUEUE_TIMEOUT, Refusal.DEADLINE]
)
def test_a_shortage_is_explained_by_any_broken_engine_and_its_recovery(reason: Refusal) -> None:
    spans = Spans()
    assert not is_explained(reason, "", 11.0, 11.0, spans)
    spans.begin(_CUT, "e-1", 10.0).ended = 12.0
    assert is_explained(reason, "", 12.0 + RECOVERY_SECONDS, 30.0, spans)
    assert not is_explained(reason, "", 12.1 + RECOVERY_SECONDS, 30.0, spans)


def test_a_store_that_is_away_is_explained_by_trouble_with_redis_alone() -> None:
    spans = Spans()
    spans.begin(_CUT, "e-1", 10.0)
    assert not is_explained(Refusal.SESSION_STORE_UNAVAILABLE, "", 11.0, 11.0, spans)
    span = spans.begin(_FROZEN, "redis", 10.0)
    assert is_explained(Refusal.SESSION_STORE_UNAVAILABLE, "", 11.0, 11.0, spans)
    span.ended = 12.0
    assert is_explained(Refusal.SESSION_STORE_UNAVAILABLE, "", 12.0 + STORE_RECOVERY_SECONDS, 30.0, spans)
    assert not is_explained(Refusal.SESSION_STORE_UNAVAILABLE, "", 12.1 + STORE_RECOVERY_SECONDS, 30.0, spans)
    assert not is_explained(Refusal.BACKEND_BROKE, "e-2", 11.0, 11.0, spans)


def test_a_rule_explains_itself_and_a_fault_of_the_gateway_is_never_explained() -> None:
    spans = Spans()
    assert is_explained(Refusal.LANE_REFUSED, "", 1.0, 1.0, spans)
    spans.begin(_CUT, "e-1", 0.0)
    for reason in (Refusal.INTERNAL, Refusal.SHUTTING_DOWN):
        assert not is_explained(reason, "e-1", 1.0, 1.0, spans)


def test_an_error_that_only_the_machine_explains_is_counted_apart() -> None:
    spans = Spans()
    told: list[str] = []
    ledger = Ledger(spans, told.append)
    spans.begin(STARVED, "e-1", 10.0).ended = 10.5
    for name, backend in (("a", "e-1"), ("b", "e-2")):
        ledger.client_saw(name, _fate(status=502))
        ledger.gateway_wrote(_line(name, 502, "refused", "backend_broke", backend), 11.0)
    assert ledger.without_core == {"backend_broke": 1} and not ledger.errors
    assert ledger.unexplained.examples == told and told[0].startswith("b (chat, plain): backend_broke")


def test_reloads_and_clock_steps_explain_nothing() -> None:
    spans = Spans()
    for trouble in (_RELOAD, _STEP):
        spans.begin(trouble, "e-1", 10.0)
    assert not is_explained(Refusal.NO_BACKEND, "", 11.0, 11.0, spans)
    assert not is_explained(None, "e-1", 11.0, 11.0, spans)
    assert not is_explained(Refusal.SESSION_STORE_UNAVAILABLE, "", 11.0, 11.0, spans)


def test_old_spans_are_forgotten_but_not_those_that_last_and_each_is_counted() -> None:
    spans = Spans(keep_seconds=100.0)
    spans.begin(_CUT, "e-1", 0.0).ended = 1.0
    spans.begin(_CUT, "e-2", 0.0)
    spans.begin(_CUT, "e-3", 200.0)
    assert not spans.were(Kind.ENGINE, 0.0, 1.0, "e-1")
    assert spans.were(Kind.ENGINE, 0.0, 1.0, "e-2")
    assert spans.counts["cut"] == 3
    assert spans.told(201.5) == "cut e-2 201.5 s before, cut e-3 1.5 s before"


def test_every_kind_of_trouble_comes_before_any_comes_again() -> None:
    drawn = list(islice(order(Random(1)), 2 * len(TROUBLES)))
    half = len(TROUBLES)
    assert {trouble.name for trouble in drawn[:half]} == {trouble.name for trouble in TROUBLES}
    assert drawn[:half] != drawn[half:] != list(TROUBLES)
    assert drawn == list(islice(order(Random(1)), 2 * half))


def test_a_metric_is_summed_over_its_labels() -> None:
    page = '# HELP pool x\npool{b="1",state="busy"} 2\npool{b="2",state="busy"} 3.0\npool{b="1",state="idle"} 9\npools 4\n'
    assert total(page, "pool", 'state="busy"') == 5.0
    assert total(page, "pools") == 4.0
    assert total(page, "absent") is None


def test_a_level_that_is_not_on_the_page_is_no_level_at_its_start() -> None:
    page = "".join(f"{name}{{{label}}} 1\n" if label else f"{name} 1\n" for name, label in LEVELS.values())
    assert set(levels(page).values()) == {1.0}
    with pytest.raises(KeyError, match="headrace_asyncio_tasks"):
        levels(page.replace("headrace_asyncio_tasks", "other"))
    assert counters('headrace_config_reloads_total{result="failed"} 2\n')["bad reloads"] == 2


def test_two_files_are_good_and_the_bad_one_is_refused() -> None:
    texts = files(8080, "redis://127.0.0.1:6379", [("e-0", 1), ("e-1", 2), ("e-2", 3), ("e-3", 4)], 5)
    whole, smaller = parse(texts["whole"], "whole", {}), parse(texts["smaller"], "smaller", {})
    assert [len(pool.backends) for pool in whole.pools] == [2, 2, 1]
    assert [len(pool.backends) for pool in smaller.pools] == [1, 2, 1]
    with pytest.raises(ConfigurationError, match="reserved_per_pool"):
        parse(texts["bad"], "bad", {})


def test_calls_of_every_kind_are_whole_name_themselves_and_are_the_same_for_a_seed() -> None:
    made = [Requests(80, Random(5)), Requests(80, Random(5))]
    calls, again = ([one.make() for _ in range(600)] for one in made)
    assert calls == again
    assert {call.kind for call in calls} == set(KINDS)
    assert len({call.request_id for call in calls}) == len(calls)
    for call in [*calls, made[0].make_flood()]:
        head, _, body = call.data.partition(b"\r\n\r\n")
        assert f"\r\nx-request-id: {call.request_id}\r\n".encode() in head + b"\r\n"
        assert f"\r\ncontent-length: {len(body)}".encode() in head
    urgent = next(call for call in calls if call.kind == "emergency")
    assert b"x-headrace-lane: emergency" in urgent.data and KEYS["bank-a"].encode() in urgent.data


def _memory(*sizes_mb: float) -> list[Resident]:
    return [Resident(1000 * number, mb) for number, mb in enumerate(sizes_mb)]


def _found() -> Found:
    ledger = _ledger()
    ledger.client_saw("a", _fate())
    ledger.gateway_wrote(_line("a"), 11.0)
    ledger.client_saw("b", _fate(status=404))
    ledger.gateway_wrote(_line("b", 404, "refused", "unknown_model", ""), 11.0)
    return Found(
        seconds=60.0,
        ledger=ledger,
        spans=Spans(),
        counters={"requests": 2, "refusals": 1, "aborts": 0, "cut": 0, "reloads": 3, "bad reloads": 1},
        reloads={"whole": 2, "smaller": 1, "bad": 1},
        before={"descriptors": 20.0, "asyncio tasks": 6.0},
        after={"descriptors": 19.0, "asyncio tasks": 6.0},
        memory=_memory(60.0, 75.0, 66.0),
        store_connections=MAX_CALLS,
        waited_seconds={"gateway": 1.0},
        tracebacks=0,
    )


def _missed(found: Found) -> list[str]:
    return [figure.name for figure in figures(found) if figure.missed]


def test_a_soak_that_lost_nothing_misses_no_bar() -> None:
    assert _missed(_found()) == []


@pytest.mark.parametrize(
    ("counter", "missed"),
    [
        ("requests", ["requests in: page against log", "requests in, less every ending"]),
        ("refusals", ["refused: page against log"]),
        ("aborts", ["aborted: page against log"]),
        ("cut", ["cut: page against log"]),
        ("reloads", ["reloads of a good file: asked against counted"]),
        ("bad reloads", ["reloads of a bad file: asked against counted"]),
    ],
)
@pytest.mark.parametrize("difference", [-1, 1])
def test_a_counter_that_is_off_by_one_misses_its_bar(
    counter: str, missed: list[str], difference: int
) -> None:
    found = _found()
    found = replace(found, counters={**found.counters, counter: found.counters[counter] + difference})
    assert _missed(found) == missed


def test_what_is_left_behind_misses_its_bar() -> None:
    found = _found()
    assert _missed(replace(found, after={**found.after, "asyncio tasks": 7.0})) == ["asyncio tasks leaked"]
    assert _missed(replace(found, store_connections=MAX_CALLS + 1)) == ["connections to Redis"]
    grown = _memory(60.0, 60.0 + GROWN_MB + 0.1)
    assert _missed(replace(found, memory=grown)) == ["memory grown"]
    assert _missed(replace(found, tracebacks=1)) == ["exceptions in the gateway's log"]


def test_memory_that_grew_and_stays_is_no_leak_and_memory_that_goes_on_growing_is() -> None:
    found = _found()
    filled = [60.0, *(min(70.0, 60.0 + number) for number in range(20)), 70.0]
    assert _missed(replace(found, memory=_memory(*filled))) == []
    per_call = STILL_GROWING_MB / 9
    leaking = [60.0, *(60.0 + 1.01 * per_call * number for number in range(20)), 60.0]
    assert _missed(replace(found, memory=_memory(*leaking))) == ["memory still growing"]
    slower = [60.0, *(60.0 + 0.99 * per_call * number for number in range(20)), 60.0]
    assert _missed(replace(found, memory=_memory(*slower))) == []


@pytest.mark.parametrize(
    ("end", "missed"),
    [
        (End.HUNG, "clients that hung"),
        (End.LOST, "connections that went away without a word"),
    ],
)
def test_a_client_that_got_no_ending_misses_a_bar(end: End, missed: str) -> None:
    found = _found()
    found.ledger.client_saw("c", _fate(end, 0))
    assert _missed(found) == ["calls waited for that the gateway does not tell of", missed]


def test_an_unexplained_error_and_a_disagreement_miss_their_bars_and_are_shown() -> None:
    found = _found()
    found.ledger.client_saw("c", _fate(status=500))
    found.ledger.gateway_wrote(_line("c", 502, "refused", "backend_broke"), 11.0)
    judged = {figure.name: figure for figure in figures(found) if figure.missed}
    assert "c (chat, plain): backend_broke" in judged["5xx and cut answers that nothing explains"].detail
    assert "500 for the client, 502" in judged["endings on which client and gateway do not agree"].detail


def test_what_slow_heads_add_is_taken_inside_each_round() -> None:
    # The machine was slow in the last round: both were, so the difference does not notice.
    judged = slow_figures([2.0, 3.0, 50.0], [3.0, 5.0, 52.0], COUNT, 10.0)
    assert judged[0].value == 2.0 and not judged[0].missed
    assert slow_figures([2.0], [7.1], COUNT, 10.0)[0].missed
    with pytest.raises(RuntimeError, match="only 5 slow"):
        slow_figures([2.0], [3.0], 5, 10.0)
    with pytest.raises(RuntimeError, match="no slow connection was ended"):
        slow_figures([2.0], [3.0], COUNT, 0.0)


def test_a_short_look_leaves_the_slow_clients_out() -> None:
    parsed = arguments(["--seconds", "60", "--rounds", "0"])
    assert (parsed.seconds, parsed.rounds, parsed.seed) == (60.0, 0, 1)
