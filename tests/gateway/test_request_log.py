"""One line per request, off the data path, whatever the reader or the client does."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.record import Outcome, Record
from gateway.request_log import CLOSE_SECONDS, MAX_BEHIND, MAX_TEXT, RequestLog
from gateway.usage import Usage
from policies.terms import Lane, Refusal, Tag

WAIT_SECONDS = 20


def ended(path: str = "/v1/chat/completions", model: str = "m") -> Record:
    record = Record("POST", path, 100.0)
    record.model = model
    record.request_id = "id-1"
    record.ready_at, record.sent_at, record.first_byte_at, record.ended_at = 100.5, 100.6, 101.0, 102.5
    record.queue_seconds = 0.1
    record.status, record.backend, record.pool, record.attempts = 200, "b", "p", 1
    return record


async def written(*records: Record, write: Callable[[bytes], object] | None = None) -> bytes:
    """What a log writes of `records` until it is closed."""
    out: list[bytes] = []
    log = RequestLog(write or out.append)
    for record in records:
        log.ended(record)
    log.close()
    return b"".join(out)


def lines(raw: bytes) -> list[dict[str, Any]]:
    assert not raw or raw.endswith(b"\n")
    return [json.loads(line) for line in raw.split(b"\n")[:-1]]


async def test_a_record_is_one_line_with_what_became_of_the_request() -> None:
    record = ended()
    record.streamed = True
    record.usage = Usage(prompt=10, completion=5, cached=2)
    record.tag = Tag(business="wealth", lane=Lane.INTERACTIVE)
    [line] = lines(await written(record))
    assert line.pop("ts") > 0
    assert line == {
        "request_id": "id-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "model": "m",
        "status": 200,
        "outcome": "ok",
        "reason": None,
        "cause": None,
        "business": "wealth",
        "lane": "interactive",
        "cache_path": "cold",
        "pool": "p",
        "backend": "b",
        "attempts": 1,
        "stream": True,
        "queue_ms": 100.0,
        "first_byte_ms": 500.0,
        "total_ms": 2000.0,
        "prompt_tokens": 10,
        "cached_tokens": 2,
        "completion_tokens": 5,
    }


async def test_a_line_tells_the_time_of_a_wall_clock_that_was_set_right_meanwhile() -> None:
    told = iter([1_000.0, 5_000.0])
    out: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    log = RequestLog(lambda data: loop.call_soon_threadsafe(out.put_nowait, data), lambda: next(told))
    times = []
    for _ in range(2):
        record = ended()
        record.arrived_at = time.perf_counter()
        log.ended(record)
        async with asyncio.timeout(WAIT_SECONDS):
            [line] = lines(await out.get())
        times.append(line["ts"])
    log.close()
    # Each is a moment before its reading, by as long as the line waited.
    assert times[0] <= 1_000.0 and 4_000.0 < times[1] <= 5_000.0


async def test_a_request_that_ended_early_has_no_times_that_did_not_happen() -> None:
    record = Record("GET", "/v1/x", 100.0)
    record.ended_at = 100.25
    record.outcome, record.reason, record.cause = Outcome.REFUSED, Refusal.BODY_TIMEOUT, "body_timeout"
    [line] = lines(await written(record))
    assert (line["first_byte_ms"], line["total_ms"], line["prompt_tokens"]) == (None, 250.0, None)
    assert (line["outcome"], line["reason"], line["cause"]) == ("refused", "body_timeout", "body_timeout")


async def test_as_many_lines_as_records_in_their_order() -> None:
    raw = await written(*(ended(model=str(number)) for number in range(3000)))
    assert [line["model"] for line in lines(raw)] == [str(number) for number in range(3000)]


@pytest.mark.parametrize(
    "text",
    ["\n", "\r\n", "\x00", "\x1b[2J", "\x7f", "\x85", "\x9b31m", "\u2028", "\u2029", "\ud800", "\udcff", "\ufeff", "\u202e"],
)  # fmt: skip
async def test_text_that_a_client_chose_can_neither_break_a_line_nor_command_a_terminal(text: str) -> None:
    raw = await written(ended(path=f"/a{text}b", model=f"c{text}d"))
    [line] = lines(raw)
    assert len(raw.decode().splitlines()) == 1
    assert raw.decode().removesuffix("\n").isprintable()
    for value, start, end in ((line["path"], "/a", "b"), (line["model"], "c", "d")):
        assert value.startswith(start) and value.endswith(end) and "\\" in value


async def test_printable_text_of_any_script_is_left_alone() -> None:
    [line] = lines(await written(ended(path='/模型/é "quoted" \\', model="😀")))
    assert (line["path"], line["model"]) == ('/模型/é "quoted" \\', "😀")


async def test_long_text_is_cut() -> None:
    raw = await written(ended(path="/" + "x" * 16_000, model="\u2028" * 16_000))
    [line] = lines(raw)
    assert line["path"] == "/" + "x" * (MAX_TEXT - 1)
    assert line["model"] == "\\u2028" * MAX_TEXT


async def test_lines_are_written_without_waiting_for_the_end() -> None:
    arrived = threading.Event()
    log = RequestLog(lambda raw: arrived.set())
    log.ended(ended())
    loop_is_free = await asyncio.to_thread(arrived.wait, WAIT_SECONDS)
    log.close()
    assert loop_is_free and arrived.is_set()


@pytest.mark.parametrize(
    "failure", [BrokenPipeError(), OSError(28, "no space"), ValueError("write to closed file")]
)
async def test_a_write_that_fails_costs_its_lines_and_not_the_log(failure: Exception) -> None:
    out: list[bytes] = []
    tried = threading.Event()

    def write(raw: bytes) -> None:
        if not tried.is_set():
            tried.set()
            raise failure
        out.append(raw)

    log = RequestLog(write)
    log.ended(ended(model="lost"))
    assert await asyncio.to_thread(tried.wait, WAIT_SECONDS)
    log.ended(ended(model="kept"))
    log.close()
    assert [line["model"] for line in lines(b"".join(out))] == ["kept"]


async def test_behind_a_reader_that_stopped_records_are_dropped_and_counted_and_closing_is_bounded() -> None:
    may_write = threading.Event()
    is_writing = threading.Event()
    out: list[bytes] = []
    finished = threading.Event()

    def write(raw: bytes) -> None:
        is_writing.set()
        assert may_write.wait(WAIT_SECONDS)
        out.append(raw)
        if b"log_records_dropped" in raw:
            finished.set()

    log = RequestLog(write)
    record = ended()
    log.ended(record)
    assert await asyncio.to_thread(is_writing.wait, WAIT_SECONDS)
    for _ in range(MAX_BEHIND + 5):
        log.ended(record)
    log.close()  # returns although nothing could be written: CLOSE_SECONDS is the bound
    assert out == []
    may_write.set()
    assert await asyncio.to_thread(finished.wait, WAIT_SECONDS)
    found = lines(b"".join(out))
    assert len(found) == MAX_BEHIND + 1
    assert found[-1] == {"log_records_dropped": 6}
    assert CLOSE_SECONDS <= 5


async def test_drops_are_told_even_if_nothing_else_is_left_to_write() -> None:
    may_write = threading.Event()
    handed_over = threading.Event()
    out: list[bytes] = []

    def write(raw: bytes) -> None:
        handed_over.set()
        assert may_write.wait(WAIT_SECONDS)
        out.append(raw)

    log = RequestLog(write)
    record = ended()
    for _ in range(MAX_BEHIND):
        log.ended(record)
    assert await asyncio.to_thread(handed_over.wait, WAIT_SECONDS)
    log.ended(record)
    may_write.set()
    log.close()
    assert out[-1].endswith(b'{"log_records_dropped":1}\n')


async def test_closing_twice_and_closing_without_records_is_harmless() -> None:
    assert await written() == b""
    log = RequestLog(lambda raw: None)
    log.close()
    log.close()
