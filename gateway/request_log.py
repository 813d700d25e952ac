"""One JSON line per request on standard output, written off the data path.

The event loop only collects records; a thread turns a quarter of a second's worth into lines and writes them, so a reader that is slow
or stopped never holds a request up. Bound: `MAX_BEHIND` records wait for the thread, more are dropped and counted in the next line.
What does not print in client-chosen text is escaped, and the text is cut to `MAX_TEXT`: one request is one line, and no reader's terminal
obeys it.
Setting: `log.requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable

import orjson

from gateway.record import Record

FLUSH_SECONDS = 0.25
MAX_BEHIND = 50_000
MAX_TEXT = 200
CLOSE_SECONDS = 2.0

Write = Callable[[bytes], object]


class RequestLog:
    def __init__(self, write: Write, wall_clock: Callable[[], float] = time.time) -> None:
        self._write = write
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()
        self._records: list[Record] = []
        self._taken = 0  # counted by the loop alone
        self._written = 0  # counted by the thread alone
        self._dropped = 0
        self._flush: asyncio.TimerHandle | None = None
        self._batches: queue.SimpleQueue[tuple[list[Record], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        self._thread.start()

    def ended(self, record: Record) -> None:
        if self._taken - self._written >= MAX_BEHIND:
            self._dropped += 1
            return
        self._taken += 1
        self._records.append(record)
        if self._flush is None:
            self._flush = self._loop.call_later(FLUSH_SECONDS, self._hand_over)

    def close(self) -> None:
        """Write what is left, within `CLOSE_SECONDS`."""
        self._hand_over()
        self._batches.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _hand_over(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._records or self._dropped:
            self._batches.put((self._records, self._dropped))
            self._records, self._dropped = [], 0

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            records, dropped = batch
            # perf_counter has no epoch; one pair of readings for each batch, since the wall clock may have been set right meanwhile.
            epoch = self._wall_clock() - time.perf_counter()
            lines = [
                orjson.dumps(self._line(record, epoch), option=orjson.OPT_APPEND_NEWLINE)
                for record in records
            ]
            if dropped:
                lines.append(orjson.dumps({"log_records_dropped": dropped}, option=orjson.OPT_APPEND_NEWLINE))
            # Nobody reads any more, or the stream was closed (ValueError): requests matter, their log does not.
            with contextlib.suppress(OSError, ValueError):
                self._write(b"".join(lines))
            self._written += len(records)

    def _line(self, record: Record, epoch: float) -> dict[str, object]:
        start = record.ready_at or record.arrived_at
        usage = record.usage
        return {
            "ts": round(epoch + record.arrived_at, 3),
            "request_id": record.request_id,
            "method": record.method[:MAX_TEXT],
            "path": _printable(record.path),
            "model": _printable(record.model),
            "status": record.status,
            "outcome": record.outcome,
            "reason": record.reason,
            "cause": record.cause or None,
            "business": record.tag.business,
            "lane": record.tag.lane,
            "cache_path": record.tag.path,
            "pool": record.pool,
            "backend": record.backend,
            "attempts": record.attempts,
            "stream": record.streamed,
            "queue_ms": _ms(record.queue_seconds),
            "first_byte_ms": _ms(record.first_byte_at - start) if record.first_byte_at else None,
            "total_ms": _ms(record.ended_at - start),
            "prompt_tokens": usage.prompt if usage else None,
            "cached_tokens": usage.cached if usage else None,
            "completion_tokens": usage.completion if usage else None,
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _printable(text: str) -> str:
    # JSON itself leaves C1 controls and line separators as they are, and orjson refuses the lone surrogates of lenient JSON.
    text = text[:MAX_TEXT]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
