"""How a request ends before its answer does: its client leaves, or the gateway has to stop.

    with Departure(scope) as departure: ...

Both cancel the task inside the block, at whatever it awaits, so that every `async with` on the way gives back what it holds; the block
then ends with `ClientGone` or with the `Refused` that `interrupt` named. Cancellation from outside passes through untouched.

An attempt may be ended alone, for an emergency: `end_attempt` cancels in the same way, and whoever made the attempt takes the cancellation
back with `goes_on`, unless the request has to end as well.

Under `headrace serve` the front calls back when the connection ends; under another ASGI server `watch` starts one task that waits for
`http.disconnect`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from gateway.answer import Answer
from gateway.body import Receive
from gateway.client_cause import Cause
from gateway.errors import Refused
from gateway.front import DEPARTURE, FrontProtocol
from gateway.record import Record
from gateway.relay import Relay
from policies.terms import Refusal
from routing.decision import Lease

Attempt = tuple[Lease, Relay, Record]


class ClientGone(Exception):
    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


class Departure:
    __slots__ = ("_ending", "_task", "_watcher", "answer", "attempt", "front")

    def __init__(self, scope: Any) -> None:
        extensions = scope.get("extensions")
        self.front: FrontProtocol | None = extensions.get(DEPARTURE) if extensions else None
        self.answer: Answer | None = None if self.front is None else self.front.running
        """What the front writes for this request."""
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._ending: Exception | None = None
        self.attempt: Attempt | None = None
        """What the task is inside of and may be taken out of; None where there is nothing, or nothing that may be made twice."""

    def __enter__(self) -> Departure:
        front = self.front
        if front is not None:
            self._task = asyncio.current_task(
                front.loop
            )  # without an argument it asks the system for the process id
            front.on_departure = self._client_gone
        else:
            self._task = asyncio.current_task()
        return self

    def watch(self, receive: Receive) -> None:
        """To be called when the body has been read: from here on the client's leaving has to be noticed."""
        if self.front is not None:
            self.front.body_taken()
        else:
            self._watcher = asyncio.create_task(self._wait_for_disconnect(receive))

    def interrupt(self, ending: Refused) -> None:
        self._end(ending)

    def spare_attempt(self) -> Attempt | None:
        """The attempt that may be ended: it has a slot, and nothing of its answer is on its way to the client or into a session."""
        attempt = self.attempt
        if attempt is None or self._ending is not None or self._task is None:
            return None
        lease, relay, _ = attempt
        has_answer = relay.head_sent or relay.body_started
        is_spare = lease.open and lease.ticket is None and not lease.gives_way and not has_answer
        return attempt if is_spare else None

    def end_attempt(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def goes_on(self) -> bool:
        """Where the cancellation by `end_attempt` arrived: whether it was the only one."""
        assert self._task is not None
        return self._task.uncancel() == 0 and self._ending is None

    def break_off(self) -> None:
        """End the client's connection without a proper end of the answer, after what was sent has left."""
        if self.front is not None:
            self.front.break_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.front is not None:
            self.front.on_departure = None
        if self._watcher is not None:
            self._watcher.cancel()
        task, self._task = self._task, None
        ending = self._ending
        if ending is None:
            return
        assert task is not None
        task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            raise ending from None

    def _client_gone(self, cause: Cause) -> None:
        if cause is Cause.BODY_TIMEOUT:
            self._end(Refused(Refusal.BODY_TIMEOUT, "The request's body stopped coming"))
        else:
            self._end(ClientGone(cause))

    def _end(self, ending: Exception) -> None:
        # After its block a request is answering a refusal: nothing would take the cancellation back.
        if self._ending is None and self._task is not None:
            self._ending = ending
            self._task.cancel()

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._client_gone(Cause.CLIENT_LEFT)
