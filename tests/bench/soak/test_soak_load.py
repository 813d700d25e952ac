"""The parts of a soak that act: how a client sees an answer end, the ways to leave, clients that stop when it is over, and the wall clock of another process."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.backend import Backend, Ending, Framing, Script, json_script, sse_script
from tests.bench.soak.client import Client, Seen, misbehave
from tests.bench.soak.clock import WallClock
from tests.bench.soak.ledger import End, Fate, Ledger
from tests.bench.soak.requests import Requests
from tests.bench.soak.traffic import WAITING, traffic
from tests.bench.soak.trouble import Spans

_DONE = [b'{"choices":[]}', b"[DONE]"]


def _raw(*chunks: bytes, ending: Ending = Ending.CUT) -> Script:
    return Script(framing=Framing.RAW, chunks=chunks, ending=ending)


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        (json_script({"choices": []}), Seen(End.ANSWERED, 200)),
        (json_script({"error": {}}, status=503, reason=b"Busy"), Seen(End.ANSWERED, 503)),
        (sse_script(*_DONE), Seen(End.ANSWERED, 200)),
        (sse_script(_DONE[0]), Seen(End.CUT, 200)),
        (sse_script(b'{"error":{"code":502}}', b"[DONE]"), Seen(End.CUT, 200)),
        (_raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), Seen(End.CUT, 200)),
        (_raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf"), Seen(End.CUT, 200)),
        (_raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), Seen(End.CUT, 200)),
        (_raw(b"", ending=Ending.RESET), Seen(End.LOST, 0)),
        (_raw(b"HTTP/1.1 200"), Seen(End.LOST, 0)),
    ],
)
async def test_a_client_sees_how_its_answer_ended(script: Script, seen: Seen) -> None:
    async with Backend(lambda _: script) as backend:
        client = Client(backend.port)
        assert await client.ask(Requests(backend.port, Random(1)).make().data) == seen
        client.close()


async def test_a_client_keeps_its_connection_unless_it_is_told_that_it_ends() -> None:
    scripts = [json_script({}), json_script({}), json_script({})]
    scripts[1] = Script(headers=[(b"connection", b"close")], chunks=[b"{}"])
    answers = iter(scripts)
    async with Backend(lambda _: next(answers)) as backend:
        client = Client(backend.port)
        requests = Requests(backend.port, Random(1))
        accepted = []
        for _ in scripts:
            assert (await client.ask(requests.make().data)).end is End.ANSWERED
            accepted.append(backend.accepted)
        client.close()
    assert accepted == [1, 1, 2]


class _WithoutPauses(Random):
    def uniform(self, a: float, b: float) -> float:
        return a


async def test_who_misbehaves_leaves_in_the_end_whatever_comes() -> None:
    async with Backend(lambda _: sse_script(*_DONE)) as backend:
        requests = Requests(backend.port, Random(1))
        for seed in range(12):
            await misbehave(Client(backend.port), requests.make().data, _WithoutPauses(seed))
        await backend.until(lambda: not backend.connections)
        assert 0 < len(backend.exchanges) <= backend.accepted <= 12
        backend.errors.clear()  # requests that broke off


async def test_traffic_ends_when_it_is_over_with_an_answer_for_each_who_waits() -> None:
    over = asyncio.Event()
    ledger = _Counting(over)
    async with Backend(lambda _: json_script({})) as backend:
        requests = Requests(backend.port, Random(1))
        await traffic(backend.port, ledger, Random(1), requests, over, leaving=0)
        await backend.until(lambda: not backend.connections)
    assert ledger.ends[End.ANSWERED] == ledger.kinds.total() >= WAITING


class _Counting(Ledger):
    """Ends it after enough answers."""

    def __init__(self, over: asyncio.Event) -> None:
        super().__init__(Spans())
        self._over = over

    def client_saw(self, request_id: str, fate: Fate) -> None:
        super().client_saw(request_id, fate)
        if self.ends[End.ANSWERED] >= WAITING:
            self._over.set()


_TELLS = """
import datetime, sys, time
for _ in sys.stdin:
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
async def test_the_wall_clock_of_another_process_is_moved_at_once_and_its_monotonic_one_is_not(
    tmp_path: Path,
) -> None:
    clock = WallClock(tmp_path)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "env", *clock.environment, sys.executable, "-c", _TELLS, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None and process.stdout is not None
    for offset in (0, 3600, -86400, 0):
        clock.step(offset)
        before, monotonic = time.time(), time.monotonic()
        process.stdin.write(b"\n")
        wall, date, steady = map(float, (await process.stdout.readline()).split())
        after = time.time()
        assert before + offset - 0.01 <= wall <= date + 0.01 <= after + offset + 0.02
        assert monotonic <= steady <= time.monotonic()
    process.stdin.close()
    await process.wait()
