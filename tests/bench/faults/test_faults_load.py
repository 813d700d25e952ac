"""The load and the stage: the schedule, how an answer's end is judged, and engines that break and come back."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from gateway.configuration import parse
from tests.bench.faults.cases import DEAD, ENGINES, REFUSE, Change, Phase
from tests.bench.faults.configuration import configuration
from tests.bench.faults.contenders import CONTENDERS, SUBJECT
from tests.bench.faults.fleet import MOST_PER_SECOND, NOT_OURS, POOL, Arrival, Stage, number_of
from tests.bench.faults.requests import Call, Requests, schedule
from tests.bench.faults.watched_exchange import BROKEN, WatchedExchange, is_broken
from tests.bench.slo.exchange import Exchange
from tests.bench.slo.fleet import Engine
from tests.bench.slo.load_generator import Load

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"


def test_a_schedule_is_the_same_for_a_seed_and_follows_its_phases() -> None:
    phases = (Phase(10.0, 0.5), Phase(10.0, 1.0))
    calls = schedule(phases, 1)
    assert calls == schedule(phases, 1) != schedule(phases, 2)
    assert [call.number for call in calls] == list(range(len(calls)))
    assert all(before.due <= after.due < 20.0 for before, after in pairwise(calls))
    late = sum(call.due >= 10.0 for call in calls)
    assert abs(late - 10 * MOST_PER_SECOND) < 5 * (10 * MOST_PER_SECOND) ** 0.5
    assert abs(sum(call.streamed for call in calls) / len(calls) - 0.5) < 0.05


def test_a_call_says_its_number_also_once_somebody_has_written_its_body_anew() -> None:
    head, _, body = Requests(80).make(Call(0.0, 17, True, 20)).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert number_of(body) == number_of(json.dumps(json.loads(body), separators=(",", ":")).encode()) == 17
    assert number_of(b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":8}') == NOT_OURS


def test_a_stream_is_broken_by_an_error_event_or_for_want_of_its_end() -> None:
    done = b"data: [DONE]\n\n\r\n0\r\n\r\n"
    assert not is_broken(_STREAM, b'data: {"choices":[]}\n\n' + done)
    assert is_broken(_STREAM, b'data: {"error":{"code":500}}\n\n' + done)
    assert is_broken(_STREAM, b'data: {"choices":[]}\n\n\r\n0\r\n\r\n')
    assert not is_broken(b"HTTP/1.1 200 OK\r\ncontent-type: application/json", b'{"choices":[]}')


class _Wire(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data


def test_a_broken_stream_is_reported_instead_of_its_status() -> None:
    statuses: list[int] = []
    attempts: dict[int, int] = {}

    def note(one: Exchange, status: int) -> None:
        statuses.append(status)
        one.call = -1

    one = WatchedExchange(note, attempts)
    one.connection_made(_Wire())
    for number, event in enumerate((b'data: {"error":1}\n\n', b"")):
        one.send(number, b"GET / HTTP/1.1\r\n\r\n")
        body = event + b"data: [DONE]\n\n"
        one.data_received(_STREAM + b"\r\nx-headrace-route: attempts=2\r\n\r\n")
        one.data_received(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert statuses == [BROKEN, 200]
    assert attempts == {0: 2, 1: 2}


def test_the_gateway_accepts_the_configuration_and_knows_every_engine() -> None:
    engines = [Engine(POOL, 9000 + number) for number in range(ENGINES)]
    settings = parse(json.dumps(configuration(8080, engines)), "faults", {})
    assert len(settings.pools[0].backends) == ENGINES
    assert settings.timeouts.gap_seconds == 2.0
    assert SUBJECT in CONTENDERS


async def _stage(change: Change) -> tuple[Stage, list[int]]:
    """Two engines, and what is to happen to them before they are well again."""
    stage = Stage([0, 0], [change, Change(2.0, change.engines)])
    await stage.begin()
    return stage, [server.port for server in stage.servers]


async def _answered(port: int, call: Call) -> int:
    attempts: dict[int, int] = {}
    load = Load(
        port,
        [call._replace(number=0)],
        _Numbered(port, call.number),
        [],
        {},
        opened_beforehand=0,
        connection=lambda on_end: WatchedExchange(on_end, attempts),
    )
    return (await load.run()).status[0]


class _Numbered(Requests):
    """Its only call under another number than its place in the schedule."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(port)
        self._number = number

    def make(self, call: Call) -> bytes:
        return super().make(call._replace(number=self._number))


@pytest.mark.parametrize("fault", [REFUSE, DEAD])
async def test_an_engine_that_is_gone_refuses_and_listens_on_its_port_again(fault: str) -> None:
    stage, ports = await _stage(Change(1.0, 1, {fault: True}))
    await stage.next_change()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", ports[0])
    await stage.next_change()
    assert [server.port for server in stage.servers] == ports
    assert await _answered(ports[0], Call(0.0, 7, True, 5)) == 200
    for server in stage.servers:
        await server.close()
    assert [(one.engine, one.call) for one in stage.seen.arrivals] == [(0, 7)]
    assert len(stage.seen.changed_at) == 2


async def test_only_the_broken_engines_have_the_fault_and_only_until_they_are_well() -> None:
    stage, ports = await _stage(Change(1.0, 1, {"error_event": 0}))
    await stage.next_change()
    call = Call(0.0, 3, True, 5)
    during = [await _answered(port, call) for port in ports]
    await stage.next_change()
    after = await _answered(ports[0], call)
    for server in stage.servers:
        await server.close()
    assert (during, after) == ([BROKEN, 200], 200)
    arrivals: list[Arrival] = stage.seen.arrivals
    assert [one.engine for one in arrivals] == [0, 1, 0]
