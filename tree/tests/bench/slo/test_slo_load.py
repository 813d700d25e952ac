"""The load itself: the schedule, the requests' bytes, the client's connection, and open and closed loops against a small emulated engine."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from itertools import islice, pairwise

from gateway.configuration import parse
from gateway.emulator import chat_template
from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings
from gateway.emulator.tokens import read_text
from tests.bench.slo.configuration import configuration
from tests.bench.slo.exchange import LOST, Exchange, business, queue_ms, reason
from tests.bench.slo.fleet import POOLS, Engine
from tests.bench.slo.kinds import KINDS, NOMINAL_RATE
from tests.bench.slo.load_generator import TIMED_OUT, Load
from tests.bench.slo.load_job import Job, closed_loop, open_loop
from tests.bench.slo.requests import API_KEY, Requests, Tags
from tests.bench.slo.schedule import Call, Phase, calls, mix, overload_phases, standard_phases, starts

_PHASES = standard_phases(steady_seconds=20, burst_seconds=20, warm_up_seconds=2)
_TAGS = {"authorization", "x-headrace-business", "x-headrace-lane"}


def _parts(request: bytes) -> tuple[dict[str, str], dict[str, object]]:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
    return {name: value for name, _, value in lines}, json.loads(body)


def test_the_schedule_is_a_function_of_phases_and_seed() -> None:
    assert calls(_PHASES, 1) == calls(_PHASES, 1)
    assert calls(_PHASES, 1) != calls(_PHASES, 2)


def test_arrivals_come_in_order_at_the_rate_of_their_phase() -> None:
    schedule = calls(_PHASES, 3)
    edges = starts(_PHASES)
    assert edges == [0, 2, 22, 42, 62]
    assert all(before.due <= after.due for before, after in pairwise(schedule))
    assert all(edges[call.phase] <= call.due < edges[call.phase + 1] for call in schedule)
    counted = Counter(call.phase for call in schedule)
    for number, phase in enumerate(_PHASES):
        expected = phase.factor * NOMINAL_RATE * phase.seconds
        assert abs(counted[number] - expected) < 5 * expected**0.5


def test_types_languages_and_emergencies_have_their_shares() -> None:
    drawn = list(islice(mix(5), 20_000))
    for number, kind in enumerate(KINDS):
        assert abs(sum(call.kind == number for call in drawn) / 20_000 - kind.rate / NOMINAL_RATE) < 0.02
    assert abs(sum(call.chinese for call in drawn) / 20_000 - 0.5) < 0.02
    assert 0.005 < sum(call.emergency for call in drawn) / 20_000 < 0.015


def test_an_overload_has_the_standard_burst_before_it() -> None:
    assert [phase.factor for phase in overload_phases(burst=3, burst_seconds=60)] == [0.8, 2.0, 0.8, 3, 0.8]


def test_prompts_have_the_length_that_was_drawn_in_the_engines_tokens() -> None:
    requests = Requests(80, Tags.NONE, 1)
    for call in islice(mix(1), 300):
        _, body = _parts(requests.make(call))
        messages = body["messages"]
        assert isinstance(messages, list)
        assert abs(read_text(chat_template.render(messages, [])).tokens - call.prompt_tokens) <= 4
        assert body["max_tokens"] == call.output_tokens


def test_calls_of_a_type_and_language_share_their_system_prompt_and_nothing_else() -> None:
    requests = Requests(80, Tags.NONE, 1)
    systems, users = set(), set()
    for call in islice(mix(2), 400):
        _, body = _parts(requests.make(call))
        messages = body["messages"]
        assert isinstance(messages, list)
        systems.add((call.kind, call.chinese, messages[0]["content"]))
        users.add(messages[1]["content"])
    assert (len(systems), len(users)) == (2 * len(KINDS), 400)


def test_each_text_holds_a_keyword_of_its_own_type_and_of_no_other() -> None:
    requests = Requests(80, Tags.TEXT, 4)
    for call in islice(mix(4), 600):
        text = requests.make(call).decode().lower()
        found = {number for number, kind in enumerate(KINDS) if any(word in text for word in kind.keywords)}
        assert found == {call.kind}


def test_headers_name_the_type_only_where_tags_are_sent() -> None:
    plain = Call(0.0, 0, 0, False, False, 400, 20)
    urgent = plain._replace(emergency=True)
    key = f"Bearer {API_KEY}"
    head, _ = _parts(Requests(80, Tags.HEADERS, 1).make(plain))
    assert (head["x-headrace-business"], head["authorization"]) == ("credit-card", key)
    assert "x-headrace-lane" not in head
    assert _parts(Requests(80, Tags.HEADERS, 1).make(urgent))[0]["x-headrace-lane"] == "emergency"
    head, _ = _parts(Requests(80, Tags.TEXT, 1).make(plain))
    assert not _TAGS & head.keys()
    head, _ = _parts(Requests(80, Tags.TEXT, 1).make(urgent))
    assert (head["authorization"], head["x-headrace-lane"]) == (key, "emergency")
    assert not _TAGS & _parts(Requests(80, Tags.NONE, 1).make(urgent))[0].keys()


def test_the_gateway_accepts_the_configuration_and_knows_every_engine() -> None:
    engines = [Engine(pool, 9000 + number) for number, pool in enumerate(POOLS)]
    settings = parse(json.dumps(configuration(8080, engines)), "slo.yaml", {})
    assert [len(pool.backends) for pool in settings.pools] == [1, 1]
    assert [kind.name for kind in settings.business_types] == [kind.name for kind in KINDS]


class _Wire(asyncio.Transport):
    """Takes what is written and remembers whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def _read(*pieces: bytes, then_lost: bool = False) -> tuple[list[int], Exchange]:
    """The statuses an exchange reports for one call that is answered in these pieces."""
    statuses: list[int] = []

    def note(one: Exchange, status: int) -> None:
        statuses.append(status)
        one.call = -1

    one = Exchange(note)
    one.connection_made(_Wire())
    one.send(0, b"GET / HTTP/1.1\r\n\r\n")
    for piece in pieces:
        one.data_received(piece)
    if then_lost:
        one.connection_lost(None)
    return statuses, one


def test_an_answer_may_come_in_pieces() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nx-headrace-route: business=loan;queue_ms=7;attempts=1\r\n"
    )
    statuses, one = _read(head[:20], head[20:] + b"\r\nab", b"cd")
    assert (statuses, one.closed) == ([200], False)
    assert (queue_ms(one.head), business(one.head), reason(one.head)) == (7.0, "loan", "")


def test_a_chunked_answer_ends_with_its_last_chunk() -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\nx-headrace-reason: queue_full\r\n\r\n"
    assert _read(head, b"2\r\nab\r\n0\r")[0] == []
    statuses, one = _read(head, b"2\r\nab\r\n0\r", b"\n\r\n")
    assert statuses == [503]
    assert (reason(one.head), queue_ms(one.head)) == ("queue_full", -1.0)


def test_an_answer_without_length_lasts_until_the_connection_ends() -> None:
    assert _read(b"HTTP/1.1 200 OK\r\n\r\nab")[0] == []
    assert _read(b"HTTP/1.1 200 OK\r\n\r\nab", then_lost=True)[0] == [200]


def test_a_connection_that_ends_too_early_is_a_lost_answer() -> None:
    assert _read(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", then_lost=True)[0] == [LOST]
    assert _read(then_lost=True)[0] == [LOST]


def test_a_connection_is_not_used_again_when_the_server_says_so() -> None:
    statuses, one = _read(
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nConnection: close\r\n\r\na", then_lost=True
    )
    assert (statuses, one.closed) == ([200], True)


async def test_the_open_loop_makes_every_call_of_the_schedule() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    job = Job(port=server.port, phases=(Phase("steady", 1.0, 0.3),), watch={"engines": os.getpid()})
    outcome = await open_loop(job)
    await server.close()
    assert outcome.status == [200] * len(calls(job.phases, job.seed))
    assert all(latency > 0 for latency in outcome.latency_ms)
    assert [reading.at for reading in outcome.readings] == [0.0, 0.3]


async def test_a_call_whose_connection_is_refused_is_a_lost_one() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    port = server.port
    schedule = list(islice(mix(1), 3))
    load = Load(port, schedule, Requests(port, Tags.NONE, 1), [], {}, opened_beforehand=0)
    await server.close()
    assert (await load.run()).status == [LOST] * 3


async def test_a_client_leaves_when_its_patience_is_over() -> None:
    server = await start(EngineSettings(), "127.0.0.1", 0)
    server.faults.update({"silent": True})
    schedule = list(islice(mix(1), 5))
    load = Load(server.port, schedule, Requests(server.port, Tags.NONE, 1), [], {}, patience_seconds=0.1)
    outcome = await load.run()
    await server.close()
    assert outcome.status == [TIMED_OUT] * 5


async def test_the_closed_loop_counts_answers_per_second() -> None:
    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    rate = await closed_loop(Job(clients={str(server.port): 2}, seconds=0.2))
    await server.close()
    assert rate > 0
