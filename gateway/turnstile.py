"""Where requests wait for a slot, and the block that gives a slot back.

    async with turnstile.lease(model, intent) as lease: ...

Takes the router's decision and keeps its bookkeeping: a granted lease is finished on the way out of the block, whatever ends it; a wait
that is cancelled or times out leaves the queue; a wait that was granted in the very tick in which it was cancelled gives its lease back
(tests/gateway/test_turnstile.py places that race by hand).

Raises `Refused` where no lease is to be had. Settings: `queue.max_wait_seconds`, and `max_wait_seconds` of a lane that has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil, inf
from types import TracebackType

from gateway.errors import Refused
from policies.terms import Lane, Refusal, Tag, TicketId, Verdict
from routing.decision import NO_INTENT, Intent, Lease, Ticket
from routing.router import Router

_MESSAGES = {
    Refusal.NO_BACKEND: "No backend is available for this request",
    Refusal.QUEUE_FULL: "Too many requests are waiting already",
    Refusal.NO_POOL: "No pool takes a request of this length, or the pool that was named does not exist",
    Refusal.OVER_SHARE: "Too many requests of this client are waiting already",
    Refusal.OVERLOADED: "The fleet cannot answer this request in time",
    Refusal.STANDING_QUEUE: "More is asked for than the fleet can serve, and most of it by requests like this one",
    Refusal.COLD_PATH_CLOSED: "Only requests whose prompt is likely to be cached are taken at the moment",
    Refusal.LANE_REFUSED: "Requests of this priority are not taken at the moment",
    Refusal.RATE_LIMITED: "More requests come than are let in at the moment",
    Refusal.DEADLINE: "The request's time was over before a slot was free",
}
_BY_DRAIN_RATE = frozenset(
    {
        Refusal.QUEUE_FULL,
        Refusal.OVER_SHARE,
        Refusal.OVERLOADED,
        Refusal.STANDING_QUEUE,
        Refusal.DEADLINE,
        Refusal.QUEUE_TIMEOUT,
    }
)

SHORT = _BY_DRAIN_RATE | {Refusal.NO_BACKEND}
"""Refusals for want of capacity."""
_BY_RULE = frozenset({Refusal.LANE_REFUSED, Refusal.RATE_LIMITED, Refusal.COLD_PATH_CLOSED})
"""What a rule refuses neither asked for a slot nor was shed: else a rule that goes by the share that is shed would hold itself up."""

Grant = Lease | Refusal


def _nothing() -> None:
    """Where nobody looks after emergencies."""


class Turnstile:
    def __init__(self, router: Router, max_wait_seconds: float) -> None:
        self.router = router
        self.max_wait_seconds = max_wait_seconds
        self.lane_wait_seconds: dict[Lane, float] = {}
        """Of lanes that have a limit of their own."""
        self._look_at = inf
        self._look_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[TicketId, asyncio.Future[Grant]] = {}
        self._moved: dict[Lease, asyncio.Future[Grant]] = {}
        """Leases that gave a slot back before their end and wait for another one."""
        self.on_emergency_waiting: Callable[[], None] = _nothing

    def lease(self, model: str, intent: Intent = NO_INTENT) -> Pass:
        return Pass(self, model, intent)

    def pump(self) -> None:
        """Hand out what the router grants; called after every event that may free a slot."""
        router = self.router
        while router.waiting or router.has_evicted:
            given_back = False
            for ticket, grant in router.pump(self._loop.time()):
                waiter = self._waiting.pop(ticket.id)
                if not waiter.cancelled():
                    waiter.set_result(grant)
                elif (
                    isinstance(grant, Lease) and ticket.lease is None
                ):  # cancelled a moment ago and not yet out of the queue
                    router.finish(grant, self._loop.time())
                    given_back = True
            if not given_back:
                break
        if router.look_at != self._look_at:
            self._look_again_at(router.look_at)

    def _look_again_at(self, at: float) -> None:
        """A gathering ends at a time, not by an event."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._look_at = at
        self._look_timer = self._loop.call_at(at, self._look) if at < inf else None

    def _look(self) -> None:
        self._look_at, self._look_timer = inf, None
        self.pump()

    def try_enter(self, model: str, intent: Intent) -> Lease | Ticket:
        router, now = self.router, self._loop.time()
        decision = router.arrive(model, now, intent)
        if decision not in _BY_RULE:
            router.endings.asked[intent.lane] += 1
        if isinstance(decision, Refusal):
            raise self._refused(decision, model, intent.lane)
        return decision

    async def wait(self, ticket: Ticket) -> Lease:
        grant = await self._wait(ticket)
        if isinstance(grant, Refusal):
            raise self._refused(grant, ticket.model, ticket.tag.lane)
        return grant

    def _refused(self, reason: Refusal, model: str, lane: Lane) -> Refused:
        if reason in SHORT:
            self.router.endings.shed[lane] += 1
        now, wait = self._loop.time(), None
        if reason in _BY_DRAIN_RATE:
            wait = self.router.admission.retry_after_seconds(lane, now)
        elif reason is Refusal.RATE_LIMITED:
            wait = max(1, ceil(self.router.entrance.wait_seconds(now)))
        return refused(reason, model, wait)

    def move(self, lease: Lease, verdict: Verdict, first_byte_sent: bool, repeatable: bool) -> bool:
        """Take a failed attempt's lease elsewhere; `resume` then waits until it has a slot there. False: it stays."""
        if not self.router.move(lease, verdict, first_byte_sent, repeatable, self._loop.time()):
            return False
        self._moves(lease)
        return True

    def put_back(self, lease: Lease) -> None:
        """Its attempt was ended for an emergency; `resume` then waits until it has a slot again."""
        self.router.put_back(lease, self._loop.time())
        self._moves(lease)

    def _moves(self, lease: Lease) -> None:
        if lease.ticket is not None:
            self._moved[lease] = self._waiting[lease.ticket.id] = self._loop.create_future()
        self.pump()  # the backend it left has room again

    async def resume(self, lease: Lease) -> None:
        """Until a moved lease has a slot. If it is cancelled here the end of its block gives back whatever it holds by then."""
        waiter = self._moved.pop(lease, None)
        if waiter is None:
            return
        ticket = lease.ticket
        if lease.tag.lane is Lane.EMERGENCY and not waiter.done():
            self.on_emergency_waiting()
        try:
            async with asyncio.timeout(self._max_wait(lease.tag)):
                grant = await waiter
        except TimeoutError:
            grant = waiter.result() if waiter.done() and not waiter.cancelled() else Refusal.QUEUE_TIMEOUT
        finally:
            if ticket is not None:
                self._waiting.pop(ticket.id, None)
        if isinstance(grant, Refusal):
            raise self._refused(grant, lease.model, lease.tag.lane)

    def produced(self, lease: Lease, tokens: int) -> None:
        """Of a running answer; its first tokens may make room for who waits."""
        router = self.router
        if router.produced(lease, tokens, self._loop.time()) and router.waiting:
            self.pump()

    def leave(self, lease: Lease) -> None:
        router = self.router
        router.finish(lease, self._loop.time())
        if router.waiting:
            self.pump()

    def _max_wait(self, tag: Tag) -> float:
        own = self.lane_wait_seconds.get(tag.lane)
        return self.max_wait_seconds if own is None else own

    async def _wait(self, ticket: Ticket) -> Grant:
        waiter: asyncio.Future[Grant] = self._loop.create_future()
        self._waiting[ticket.id] = waiter
        self.pump()  # its arrival may have completed a batch, or put somebody out
        tag = ticket.tag
        if tag.lane is Lane.EMERGENCY and not waiter.done():
            self.on_emergency_waiting()
        now = self._loop.time()
        limit = now + self._max_wait(tag)
        reason = Refusal.QUEUE_TIMEOUT
        given_up_at = self.router.admission.given_up_at(ticket)
        if given_up_at < limit:
            limit, reason = given_up_at, Refusal.DEADLINE
        try:
            async with asyncio.timeout_at(limit):
                return await waiter
        except TimeoutError:
            grant = self._withdraw(ticket, waiter)
            if grant is None and reason is Refusal.DEADLINE:
                self.router.admission.waited(ticket, False, self._loop.time())
            return grant or reason
        except BaseException:
            grant = self._withdraw(ticket, waiter)
            if isinstance(grant, Lease):
                self.leave(grant)
            raise

    def _withdraw(self, ticket: Ticket, waiter: asyncio.Future[Grant]) -> Grant | None:
        """Out of the queue; or the grant that came in the same tick as the reason to go."""
        self._waiting.pop(ticket.id, None)
        if self.router.cancel(ticket):
            if self.router.slots.tokens.keeps:
                self.pump()  # it may have been the large one that others waited behind
            return None
        if waiter.cancelled() or not waiter.done():
            return None
        return waiter.result()


class Pass:
    """The block around a lease."""

    __slots__ = ("_intent", "_lease", "_model", "_turnstile")

    def __init__(self, turnstile: Turnstile, model: str, intent: Intent) -> None:
        self._turnstile = turnstile
        self._model = model
        self._intent = intent
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        lease = self._turnstile.try_enter(self._model, self._intent)
        if not isinstance(lease, Lease):
            lease = await self._turnstile.wait(lease)
        self._lease = lease
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        self._turnstile.leave(self._lease)


def refused(reason: Refusal, model: str, retry_after_seconds: int | None = None) -> Refused:
    """`retry_after_seconds` as measured; None leaves it to the reason."""
    if reason is Refusal.UNKNOWN_MODEL:
        return Refused(reason, f"The model `{model[:200]}` does not exist.", "model")
    if reason is Refusal.QUEUE_TIMEOUT:
        return Refused(
            reason, "The request waited too long for a slot", retry_after_seconds=retry_after_seconds
        )
    return Refused(reason, _MESSAGES[reason], retry_after_seconds=retry_after_seconds)
