"""A vLLM-shaped engine that costs next to nothing: fixed answers, so that a benchmark measures what stands in front of it.

    python -m tests.bench.mock_engine --port 8000 --step-ms 50 --groups 16

Plain chat calls are answered at once with one fixed completion of about 600 bytes. Streams get a role chunk at once and then one
content chunk per step, each in its own write, `max_tokens` of them; then finish, usage if asked for, and `[DONE]`. Streams are dealt
to `groups` batches whose steps are spread evenly over `step_ms`: what a fleet of so many engines looks like, each giving all
sequences of its batch their token at once. Every content chunk carries the monotonic nanosecond of its sending (`STAMP`), good on the
same machine only. `GET /mock/stats` counts what is open.

Limits: no prefill, no batching, no `Transfer-Encoding` in requests; it speaks just enough HTTP for the peers of the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import time
from collections.abc import Iterator
from typing import cast

import uvloop

from tests.bench.chat_bodies import FLOOD_TOKENS
from tests.bench.engine_answers import (
    BAD_REQUEST,
    ENDING,
    ENDING_WITH_USAGE,
    FLOOD_BYTES,
    FLOOD_FRAME,
    FRAME_HEAD,
    FRAME_TAIL,
    NOT_FOUND,
    PAGES,
    PLAIN,
    STREAM_OPENING,
    json_answer,
)


class Engine:
    """The batches' steps and the counts of what is open."""

    def __init__(self, step_ms: float, groups: int) -> None:
        self.batches: list[set[Connection]] = [set() for _ in range(groups)]
        self.step_seconds = step_ms / 1000
        self.connections = self.requests = self.aborted = 0
        self.all_left = asyncio.Event()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._turn = self._turns()
        self._step()

    def _turns(self) -> Iterator[set[Connection]]:
        while True:
            yield from self.batches

    def _step(self) -> None:
        for connection in tuple(next(self._turn)):
            connection.emit()
        # Absolute times: a late step does not push the later ones back.
        self._due = max(
            self._due + self.step_seconds / len(self.batches), self._loop.time() - self.step_seconds
        )
        self._loop.call_at(self._due, self._step)

    def emptiest_batch(self) -> set[Connection]:
        return min(self.batches, key=len)

    def stats(self) -> bytes:
        running = sum(map(len, self.batches))
        counts = {
            "connections": self.connections,
            "streams": running,
            "requests": self.requests,
            "aborted": self.aborted,
        }
        return json_answer(json.dumps(counts).encode())


class Connection(asyncio.Protocol):
    """One connection from a gateway: requests are parsed by hand and answered in turn."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.buffer = bytearray()
        self.needed = 0
        self.body_at = 0
        self.batch: set[Connection] | None = None
        self.chunks_left = 0
        self.flood_left = 0
        self.ending = ENDING
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            asyncio.Transport, transport
        )  # uvloop's own class; registered under none of asyncio's
        self.engine.connections += 1
        self.engine.all_left.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.connections -= 1
        if self.batch is not None or self.flood_left:
            self.engine.aborted += 1
        self._leave_batch()
        self.flood_left = 0
        if not self.engine.connections:
            self.engine.all_left.set()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._flood()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while self._take_request():
            pass

    def _take_request(self) -> bool:
        if not self.needed:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.body_at = end + 4
            head = self.buffer[:end].lower()
            at = head.find(b"\r\ncontent-length:")
            length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self.needed = self.body_at + length
            if b"\r\nexpect: 100-continue" in head:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self.buffer) < self.needed:
            return False
        request = bytes(self.buffer[: self.needed])
        del self.buffer[: self.needed]
        self.needed = 0
        self._answer(request)
        return True

    def _answer(self, request: bytes) -> None:
        method, path, _ = request.split(b" ", 2)
        if method != b"POST":
            page = path.partition(b"?")[0]
            self.transport.write(
                self.engine.stats() if page == b"/mock/stats" else PAGES.get(page, NOT_FOUND)
            )
            return
        if path != b"/v1/chat/completions":
            self.transport.write(NOT_FOUND)
            return
        self.engine.requests += 1
        if not _flag(request, self.body_at, b'"stream"'):
            self.transport.write(PLAIN)
            return
        tokens = _number(request, self.body_at, b'"max_tokens"') or _number(
            request, self.body_at, b'"max_completion_tokens"'
        )
        self.ending = ENDING_WITH_USAGE if _flag(request, self.body_at, b'"include_usage"') else ENDING
        if not tokens:
            self.transport.write(BAD_REQUEST)
            return
        self.transport.write(STREAM_OPENING)
        if tokens >= FLOOD_TOKENS:
            self.flood_left = FLOOD_BYTES
            self._flood()
            return
        self.chunks_left = tokens
        self.batch = self.engine.emptiest_batch()
        self.batch.add(self)

    def emit(self) -> None:
        """One step: the next content chunk, and after the last one the ending. A connection that is full misses its turn."""
        if not self.writable:
            return
        self.chunks_left -= 1
        stamp = b"%020d" % time.monotonic_ns()
        if self.chunks_left > 0:
            self.transport.write(b"".join((FRAME_HEAD, stamp, FRAME_TAIL)))
            return
        self._leave_batch()
        self.transport.write(b"".join((FRAME_HEAD, stamp, FRAME_TAIL, self.ending)))

    def _flood(self) -> None:
        if not self.flood_left:
            return
        while self.writable and self.flood_left > 0:
            self.flood_left = max(0, self.flood_left - len(FLOOD_FRAME))
            self.transport.write(FLOOD_FRAME)
        if not self.flood_left:
            self.transport.write(self.ending)

    def _leave_batch(self) -> None:
        if self.batch is not None:
            self.batch.discard(self)
            self.batch = None


def _value(request: bytes, body_at: int, key: bytes) -> bytes:
    at = request.find(key, body_at)
    return request[at + len(key) : at + len(key) + 24].lstrip(b" :") if at >= 0 else b""


def _flag(request: bytes, body_at: int, key: bytes) -> bool:
    return _value(request, body_at, key).startswith(b"true")


def _number(request: bytes, body_at: int, key: bytes) -> int | None:
    digits = _value(request, body_at, key)
    count = next((at for at, byte in enumerate(digits) if not 48 <= byte <= 57), len(digits))
    return int(digits[:count]) if count else None


async def serve(port: int, engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=4096)
    engine.start()
    # A collection in the middle of a step would be measured as the gateway's delay.
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGINT, ended.set)
    await ended.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.mock_engine", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=50.0, help="time between two chunks of a stream")
    parser.add_argument(
        "--groups", type=int, default=16, help="batches whose steps are spread over the step time"
    )
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, Engine(arguments.step_ms, arguments.groups)))


if __name__ == "__main__":
    main()
