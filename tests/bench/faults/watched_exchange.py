"""The client's connection, as `slo.exchange` has it, that also looks at how an answer ends: an error event under status 200, or a stream without its end, is no answer."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from tests.bench.slo.exchange import Exchange, field

BROKEN = -2
"""In the place of a status: 200, and an error in the stream."""
_TAIL_BYTES = 512


class WatchedExchange(Exchange):
    """Notes in `attempts` by the call's number how many attempts the gateway says that it made, where it says that."""

    def __init__(self, on_end: Callable[[Exchange, int], None], attempts: MutableMapping[int, int]) -> None:
        super().__init__(self._judged)
        self._pass_on = on_end
        self._attempts = attempts
        self._tail = b""

    def send(self, call: int, request: bytes) -> None:
        self._tail = b""
        super().send(call, request)

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        super().data_received(data)

    def _judged(self, one: Exchange, status: int) -> None:
        if status == 200 and is_broken(one.head, self._tail):
            status = BROKEN
        self._attempts[one.call] = int(field(one.head, b"attempts=") or 1)
        self._pass_on(one, status)


def is_broken(head: bytes, tail: bytes) -> bool:
    """Whether an answer that was read to its end is a stream that failed."""
    if b"text/event-stream" not in head.lower():
        return False
    return b"data: [DONE]" not in tail or b'data: {"error"' in tail
