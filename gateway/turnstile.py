"""Where requests wait for a slot, and the block that gives a slot back.

    async with turnstile.lease(model) as lease: ...

Takes the router's decision and keeps its bookkeeping: a granted lease is finished on the way out of the block, whatever ends it; a wait
that is cancelled or times out leaves the queue; a wait that was granted in the very tick in which it was cancelled gives its lease back
(tests/gateway/test_turnstile.py places that race by hand).

Raises `Refused` where no lease is to be had. Setting: `queue.max_wait_seconds`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from gateway.errors import Refused
from policies.terms import Refusal, TicketId, Verdict
from routing.decision import Lease, Ticket
from routing.router import Router

_MESSAGES = {
    Refusal.NO_BACKEND: "No backend is available for this request",
    Refusal.QUEUE_FULL: "Too many requests are waiting already",
}

Grant = Lease | Refusal


class Turnstile:
    def __init__(self, router: Router, max_wait_seconds: float) -> None:
        self.router = router
        self.max_wait_seconds = max_wait_seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[TicketId, asyncio.Future[Grant]] = {}
        self._moved: dict[Lease, asyncio.Future[Grant]] = {}
        """Leases that gave a failed backend's slot back and wait for one elsewhere."""

    def lease(self, model: str) -> Pass:
        return Pass(self, model)

    def pump(self) -> None:
        """Hand out what the router grants; called after every event that may free a slot."""
        while self.router.waiting:
            given_back = False
            for ticket, grant in self.router.pump(self._loop.time()):
                waiter = self._waiting.pop(ticket.id)
                if not waiter.cancelled():
                    waiter.set_result(grant)
                elif (
                    isinstance(grant, Lease) and ticket.lease is None
                ):  # cancelled a moment ago and not yet out of the queue
                    self.router.finish(grant)
                    given_back = True
            if not given_back:
                return

    def try_enter(self, model: str) -> Lease | Ticket:
        decision = self.router.arrive(model, self._loop.time())
        if isinstance(decision, Refusal):
            raise refused(decision, model)
        return decision

    async def wait(self, ticket: Ticket) -> Lease:
        grant = await self._wait(ticket)
        if isinstance(grant, Refusal):
            raise refused(grant, ticket.model)
        return grant

    def move(self, lease: Lease, verdict: Verdict, first_byte_sent: bool, repeatable: bool) -> bool:
        """Take a failed attempt's lease elsewhere; `resume` then waits until it has a slot there. False: it stays."""
        if not self.router.move(lease, verdict, first_byte_sent, repeatable, self._loop.time()):
            return False
        if lease.ticket is not None:
            self._moved[lease] = self._waiting[lease.ticket.id] = self._loop.create_future()
        self.pump()  # the backend it left has room again
        return True

    async def resume(self, lease: Lease) -> None:
        """Until a moved lease has a slot. If it is cancelled here the end of its block gives back whatever it holds by then."""
        waiter = self._moved.pop(lease, None)
        if waiter is None:
            return
        ticket = lease.ticket
        try:
            async with asyncio.timeout(self.max_wait_seconds):
                grant = await waiter
        except TimeoutError:
            grant = waiter.result() if waiter.done() and not waiter.cancelled() else Refusal.QUEUE_TIMEOUT
        finally:
            if ticket is not None:
                self._waiting.pop(ticket.id, None)
        if isinstance(grant, Refusal):
            raise refused(grant, lease.model)

    def leave(self, lease: Lease) -> None:
        self.router.finish(lease)
        self.pump()

    async def _wait(self, ticket: Ticket) -> Grant:
        waiter: asyncio.Future[Grant] = self._loop.create_future()
        self._waiting[ticket.id] = waiter
        try:
            async with asyncio.timeout(self.max_wait_seconds):
                return await waiter
        except TimeoutError:
            return self._withdraw(ticket, waiter) or Refusal.QUEUE_TIMEOUT
        except BaseException:
            grant = self._withdraw(ticket, waiter)
            if isinstance(grant, Lease):
                self.leave(grant)
            raise

    def _withdraw(self, ticket: Ticket, waiter: asyncio.Future[Grant]) -> Grant | None:
        """Out of the queue; or the grant that came in the same tick as the reason to go."""
        self._waiting.pop(ticket.id, None)
        if self.router.cancel(ticket) or waiter.cancelled() or not waiter.done():
            return None
        return waiter.result()


class Pass:
    """The block around a lease."""

    __slots__ = ("_lease", "_model", "_turnstile")

    def __init__(self, turnstile: Turnstile, model: str) -> None:
        self._turnstile = turnstile
        self._model = model
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        lease = self._turnstile.try_enter(self._model)
        if not isinstance(lease, Lease):
            lease = await self._turnstile.wait(lease)
        self._lease = lease
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        self._turnstile.leave(self._lease)


def refused(reason: Refusal, model: str) -> Refused:
    if reason is Refusal.UNKNOWN_MODEL:
        return Refused(reason, f"The model `{model[:200]}` does not exist.", "model")
    if reason is Refusal.QUEUE_TIMEOUT:
        return Refused(reason, "The request waited too long for a slot")
    return Refused(reason, _MESSAGES[reason])
