"""The load of the cache benchmark: its schedule, its texts, the size of its working set, and that the gateway and the engines take both."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

from gateway.configuration import parse
from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings
from gateway.emulator.tokens import read_text
from tests.bench.cache.catalogue import (
    DOCUMENT_TOKENS,
    DOCUMENTS,
    SYSTEM_TOKENS,
    SYSTEMS,
    Catalogue,
    zipf,
)
from tests.bench.cache.configuration import configuration
from tests.bench.cache.contenders import CACHE_AWARE, CONTENDERS, POWER_OF_TWO, ROUND_ROBIN, SUBJECT
from tests.bench.cache.fleet import KV_BLOCKS, POOL
from tests.bench.cache.load_job import Job, closed_loop, endless, open_loop
from tests.bench.cache.requests import Requests
from tests.bench.cache.schedule import (
    DOCUMENT_SHARE,
    LEAST_GAP_SECONDS,
    LOAD,
    MEASURED,
    NAMED_SHARE,
    ONE_OFF_SHARE,
    SESSION_SHARE,
    SHIFT,
    SYSTEM_SHARE,
    TURNS,
    Call,
    Kind,
    calls,
    disturbed_phases,
    standard_phases,
)
from tests.bench.cache.working_set import of_prompts, read_prompt, working_set
from tests.bench.slo.fleet import Engine
from tests.bench.slo.schedule import Phase, starts

_RATE = 62.0
_PHASES = standard_phases()


def _body(request: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(request.partition(b"\r\n\r\n")[2])
    return found


def _call(kind: Kind, *, number: int = 1, system: int = -1, document: int = -1, own: int = 40) -> Call:
    return Call(0.0, 0, kind, number, system, document, (own,), 20, False, False)


def test_the_schedule_is_a_function_of_phases_rate_and_seed() -> None:
    assert calls(_PHASES, _RATE, 1) == calls(_PHASES, _RATE, 1)
    assert calls(_PHASES, _RATE, 1) != calls(_PHASES, _RATE, 2)


def test_calls_come_in_order_inside_their_phase_and_at_the_rate_from_the_first_second_on() -> None:
    schedule = calls((Phase(MEASURED, LOAD, 30), Phase(MEASURED, LOAD, 60)), 100.0, 3)
    edges = starts((Phase(MEASURED, LOAD, 30), Phase(MEASURED, LOAD, 60)))
    assert all(before.due <= after.due for before, after in pairwise(schedule))
    assert all(edges[call.phase] <= call.due < edges[call.phase + 1] for call in schedule)
    for begin in (0, 30, 60):
        count = sum(begin <= call.due < begin + 30 for call in schedule)
        assert abs(count - 3000) < 300


def test_each_kind_has_its_share() -> None:
    schedule = calls((Phase(MEASURED, LOAD, 300),), 100.0, 5)
    counted = Counter(call.kind for call in schedule)
    wanted = {
        Kind.SYSTEM: SYSTEM_SHARE,
        Kind.DOCUMENT: DOCUMENT_SHARE,
        Kind.SESSION: SESSION_SHARE,
        Kind.ONE_OFF: ONE_OFF_SHARE,
    }
    for kind, share in wanted.items():
        assert abs(counted[kind] / len(schedule) - share) < 0.02


def test_a_session_grows_by_a_turn_each_time_and_pauses_between_them() -> None:
    sessions = defaultdict(list)
    for call in calls((Phase(MEASURED, LOAD, 200),), 60.0, 7):
        if call.kind is Kind.SESSION:
            sessions[call.number].append(call)
    for turns in sessions.values():
        assert len({call.system for call in turns}) == len({call.named for call in turns}) == 1
        for before, after in pairwise(turns):
            assert after.own_tokens[:-1] == before.own_tokens
            assert after.due - before.due >= LEAST_GAP_SECONDS
        assert len(turns[-1].own_tokens) <= TURNS[1]
    whole = [turns for turns in sessions.values() if len(turns[0].own_tokens) == 1 and turns[0].due < 100]
    assert min(len(turns) for turns in whole) == TURNS[0]
    named = sum(turns[0].named for turns in sessions.values()) / len(sessions)
    assert abs(named - NAMED_SHARE) < 0.06


def test_popularity_is_zipfs() -> None:
    assert zipf(3, 1.0) == [1, 1.5, 1.5 + 1 / 3]
    ranks = Counter(
        call.system for call in calls((Phase(MEASURED, LOAD, 300),), 100.0, 1) if call.kind is Kind.SYSTEM
    )
    assert 1.6 < ranks[0] / ranks[1] < 2.4


def test_from_the_shift_on_nothing_but_old_sessions_asks_for_the_first_generation() -> None:
    phases = disturbed_phases()
    edges = starts(phases)
    shifted = next(begin for begin, phase in zip(edges, phases, strict=False) if phase.name == SHIFT)
    for call in calls(phases, _RATE, 2):
        single = call.kind is not Kind.SESSION
        if single and call.system >= 0:
            assert (call.system >= SYSTEMS) == (call.due >= shifted)
        if call.document >= 0:
            assert (call.document >= DOCUMENTS) == (call.due >= shifted)
        if call.system >= SYSTEMS:
            assert call.due >= shifted


def test_the_catalogue_keeps_its_sizes_and_each_generation_to_itself() -> None:
    catalogue = Catalogue(4)
    assert all(SYSTEM_TOKENS[0] <= tokens <= SYSTEM_TOKENS[1] for tokens in catalogue.system_tokens)
    for number, document in enumerate(catalogue.documents):
        assert DOCUMENT_TOKENS[0] <= document.tokens <= DOCUMENT_TOKENS[1]
        assert (document.system >= SYSTEMS) == (number >= DOCUMENTS)


def test_prompts_have_the_length_that_was_drawn_in_the_engines_tokens() -> None:
    requests, catalogue = Requests(80, 1), Catalogue(1)
    for call in calls((Phase(MEASURED, LOAD, 3),), _RATE, 1):
        said = sum(call.own_tokens)
        said += catalogue.system_tokens[call.system] if call.system >= 0 else 0
        said += catalogue.documents[call.document].tokens if call.document >= 0 else 0
        tokens = read_prompt(requests.make(call)).tokens
        assert said < tokens < said + 12 + 25 * (len(call.own_tokens) - 1) + 4


def test_a_call_is_streamed_and_asks_for_what_was_drawn() -> None:
    plain = _call(Kind.ONE_OFF)
    body = _body(Requests(80, 1).make(plain))
    assert (body["stream"], body["max_tokens"], "stream_options" in body) == (True, 20, False)
    asking = _body(Requests(80, 1).make(plain._replace(usage=True)))
    assert asking["stream_options"] == {"include_usage": True}
    assert b"x-headrace-session" not in Requests(80, 1).make(plain)
    named = Requests(80, 1).make(plain._replace(named=True, number=77))
    assert b"\r\nx-headrace-session: session-77\r\n" in named


def test_calls_share_their_system_prompt_and_document_and_nothing_else() -> None:
    requests = Requests(80, 1)
    first = read_prompt(requests.make(_call(Kind.DOCUMENT, number=1, system=3, document=5)))
    again = read_prompt(requests.make(_call(Kind.DOCUMENT, number=2, system=3, document=5)))
    other = read_prompt(requests.make(_call(Kind.DOCUMENT, number=3, system=3, document=6)))
    alone = [read_prompt(requests.make(_call(Kind.ONE_OFF, number=number))) for number in (4, 5)]
    catalogue = Catalogue(1)
    system = catalogue.system_tokens[3]
    shared = len(set(first.block_hashes) & set(again.block_hashes))
    assert abs(shared - (system + catalogue.documents[5].tokens) / 16) < 2
    assert abs(len(set(first.block_hashes) & set(other.block_hashes)) - system / 16) < 2
    assert not set(alone[0].block_hashes) & set(alone[1].block_hashes)


def test_a_sessions_prompt_begins_with_the_one_before_it() -> None:
    requests = Requests(80, 1)
    first = _call(Kind.SESSION, number=9, system=2, own=200)
    second = first._replace(own_tokens=(200, 150))
    before, after = (read_prompt(requests.make(call)).block_hashes for call in (first, second))
    assert list(after[: len(before) - 1]) == list(before[:-1])
    assert len(after) > len(before)


def test_the_working_set_is_what_is_asked_for_again_and_touched_in_the_time() -> None:
    shared = "s" * 640
    prompts = [(at, read_text(shared + chr(65 + number) * 640)) for number, at in enumerate((0.0, 5.0, 6.0))]
    prompts.append((7.0, read_text("x" * 64)))
    found = of_prompts(prompts, 4.0, 8.0)
    assert found.blocks == 10
    assert found.mean_prompt_tokens == (320 + 320 + 16) / 3
    # Two calls find the ten blocks before their own; nothing was there before the last one.
    assert found.repeated_share == 2 * 160 / (320 + 320 + 16)
    assert of_prompts(prompts, 6.5, 8.0).blocks == 0


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    prompts = [(at, read_text("y" * 128)) for at in (0.0, 1.0)]
    assert of_prompts(prompts, 1.0, 2.0).repeated_share == 0.5


def test_the_caches_of_the_fleet_hold_about_half_of_the_working_set() -> None:
    begin, end = starts(_PHASES)[1:]
    found = working_set(calls(_PHASES, _RATE, 1), 1, begin, end)
    assert 0.4 < POOL.engines * KV_BLOCKS / found.blocks < 0.6
    assert 1700 < found.mean_prompt_tokens < 2200


def test_the_gateway_accepts_the_configuration_and_knows_every_engine() -> None:
    engines = [Engine(POOL, 9000 + number) for number in range(POOL.engines)]
    (pool,) = parse(json.dumps(configuration(8080, engines)), "cache.yaml", {}).pools
    assert len(pool.backends) == POOL.engines


def test_every_policy_of_both_routers_is_there() -> None:
    assert {SUBJECT, *ROUND_ROBIN, *POWER_OF_TWO, *CACHE_AWARE} <= CONTENDERS.keys()


async def test_the_open_loop_makes_every_call_and_times_its_first_byte() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    job = Job(port=server.port, phases=(Phase(MEASURED, LOAD, 0.3),), rate=60.0, seed=1)
    outcome = await open_loop(job)
    asked = server.engine.measurements.prefix_queries
    await server.close()
    assert outcome.status == [200] * len(calls(job.phases, job.rate, job.seed))
    times = zip(outcome.first_byte_ms, outcome.latency_ms, strict=True)
    assert all(0 < first <= whole for first, whole in times)
    assert asked > 0


async def test_the_closed_loop_counts_answers_per_second() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    rate = await closed_loop(Job(clients={str(server.port): 2}, seconds=0.2, seed=1))
    await server.close()
    assert rate > 0


def test_the_closed_loop_never_runs_out_of_calls_nor_repeats_itself() -> None:
    draws = endless(1, 0.5)
    drawn = [next(draws) for _ in range(200)]
    assert len(set(drawn)) == 200
