"""Which slot goes to whom: the choice for one request (`choose`), and what all who wait may have now (`granted`).

Rules: `routing.pool_order` (which pool is tried first), `routing.placement` (which backend of it), `policies.path_split` (hot and cold), `routing.reserve` (what is left for whom), `policies.gathering` (throughput
requests that go together), `policies.shedding` (who is given up), `routing.idle_order` (the best backend of a pool).
State: when to look again (`look_at`). `granted` looks at the heads of lines only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from policies.emergency import ReserveRules
from policies.gathering import group_size, hold_seconds
from policies.members import BATCH, EMERGENCY, INTERACTIVE, QUEUE_FULL, STANDARD
from policies.path_split import has_time_to_spare
from policies.pool_choice import PoolChoiceRules, is_realtime
from policies.shedding import SheddingRules, hopeless
from policies.terms import Lane, PoolName, Refusal, Tag, TicketId
from routing.backend import Backend
from routing.counts import Counts
from routing.decision import Line, Ticket
from routing.fair_queue import FairQueue
from routing.fleet import Fleet
from routing.forecast import Forecast
from routing.group import Group
from routing.placement import Placement
from routing.pool import Pool
from routing.pool_order import PoolOrder
from routing.rates import ArrivalRate
from routing.reserve import Reserve
from routing.token_choice import TokenChoice
from routing.ways import Places, Ways

_DISPATCH_DEVIATIONS = 1.0
_THROUGHPUT = (STANDARD, BATCH)
_STANDARD = (STANDARD,)
_ABOVE_BATCH = (EMERGENCY, INTERACTIVE, STANDARD)
_URGENT = (EMERGENCY, INTERACTIVE)
_EMERGENCIES = (EMERGENCY,)

Choice = Backend | Refusal


class Slots:
    def __init__(
        self,
        fleet: Fleet,
        queue: FairQueue[Ticket],
        forecast: Forecast,
        counts: Counts,
        placement: Placement,
    ) -> None:
        self._fleet = fleet
        self._placement = placement
        self._queue = queue
        self._ways = Ways(fleet, queue)
        self._forecast = forecast
        self._counts = counts
        self.reserve = Reserve(fleet, queue, forecast)
        self._pool_choice = PoolChoiceRules()
        self._shedding = SheddingRules()
        self._throughput_arrivals = ArrivalRate()
        self._held: dict[PoolName, TicketId] = {}
        """Whom each pool held back last."""
        self._seen_version = -1
        self.tokens = TokenChoice(queue)
        self.order = PoolOrder(queue, forecast, counts)
        self.look_at = inf

    def configure(self, reserve: ReserveRules, pool_choice: PoolChoiceRules, shedding: SheddingRules) -> None:
        self._pool_choice, self._shedding = pool_choice, shedding
        self.reserve.configure(reserve)
        self.order.configure(pool_choice)

    # --- one request ----------------------------------------------------------------------------------------------------------

    def choose(
        self, line: Line, tag: Tag, tried: Sequence[Backend], now: float, others_wait: bool = False
    ) -> Choice:
        """A backend with a free slot, `QUEUE_FULL` where all that may be used are full, or why there is none.

        `others_wait`: in the same line. Then only a slot is free that comes too late for the first of them.
        """
        gathers = self._fleet.gathers and tag.lane in _THROUGHPUT
        if gathers:
            self._throughput_arrivals.arrived(now)
        if others_wait and not (
            self._queue.has_deadline(line) or self._queue.has_deadline(line.on_other_path())
        ):
            return self.outlook(line, tried)  # no slot comes too late for them
        groups = self._fleet.groups(line.model, line.pools)
        realtime = len(groups) > 1 and is_realtime(
            tag.lane, tag.prompt_tokens, tag.output_tokens, self._pool_choice
        )
        places: list[int] = []
        for place, group in enumerate(groups):
            if (
                group is None
                or not self.reserve.has_slot(group.pool, tag)
                or (place and not self.order.may_enter(place, groups, realtime))
                or (others_wait and not self._is_too_late_for_the_first(line, group.pool, now))
                # `granted` says when:
                or (gathers and group.pool.gathering is not None and not tried)
            ):
                continue
            places.append(place)
        if len(places) > 1 and not tried:
            first = self.order.first(line, groups, tag, realtime, now)
            if first in places:
                places.remove(first)
                places.insert(0, first)
        for place in places:
            group = groups[place]
            assert group is not None
            backend = self._free(group, line, tag, tried, now)
            if backend is not None:
                if place:
                    self.order.note_spill(line, place, now)
                    if not tried:
                        self.order.count_spill(groups, place)
                return backend
        return self.outlook(line, tried)

    def outlook(self, line: Line, tried: Sequence[Backend]) -> Refusal:
        """`QUEUE_FULL` where it is only a matter of waiting."""
        fleet = self._fleet
        groups = fleet.groups(line.model, line.pools)
        for group in groups:
            if group is not None and self._is_usable(group, line, tried):
                return QUEUE_FULL
        is_served = any(group is not None for group in groups) or not line.model or fleet.serving(line.model)
        return Refusal.NO_BACKEND if is_served else Refusal.UNKNOWN_MODEL

    def home_seconds(self, line: Line, tag: Tag, deviations: float = 0.0) -> float:
        """From dispatch to the first byte where the requests of this line belong."""
        return self._forecast.service_seconds(self._home(line), tag, deviations)

    def _home(self, line: Line) -> PoolName:
        """The first of its pools that can be used now."""
        pools = self._fleet.pools
        usable = (name for name in line.pools if name in pools and pools[name].capacity)
        return next(usable, line.pools[0])

    def _is_usable(self, group: Group, line: Line, tried: Sequence[Backend]) -> bool:
        if line.backend is not None:
            pinned = self._fleet.get(line.backend)
            return (
                pinned is not None
                and pinned in group.members
                and not pinned.is_blocked
                and pinned not in tried
            )
        return group.has_usable(tried)

    def _free(
        self, group: Group, line: Line, tag: Tag, tried: Sequence[Backend], now: float
    ) -> Backend | None:
        """The best backend of the group with a free slot, and with the tokens."""
        tried = self.to_avoid(group, line, tag, tried)
        if line.backend is not None:
            backend = self._with_slot(group, line, tried)
        elif tag.key is None or len(group.members) == 1:
            backend = group.best(tried)
        else:
            backend = self._placement.choose(group, tag.key, tag, tried, now) or group.best(tried)
        if backend is None or (room := backend.room) is None:
            return backend
        if (room.kept_for is None and room.fits(tag, backend.in_flight)) or self.tokens.fits(backend, tag):
            return backend
        return self.tokens.best(group, tag, tried) if line.backend is None else None

    def to_avoid(self, group: Group, line: Line, tag: Tag, tried: Sequence[Backend]) -> Sequence[Backend]:
        """`tried`, and for an emergency the group's doubtful ones: it is nobody's trial while the group has a backend that is well, be it full."""
        if tag.lane is not EMERGENCY or line.backend is not None:
            return tried
        doubtful = [one for one in self._fleet.doubtful if one in group]
        return [*tried, *doubtful] if doubtful and group.has_usable([*tried, *doubtful]) else tried

    def _with_slot(self, group: Group, line: Line, tried: Sequence[Backend]) -> Backend | None:
        """The best with a free slot, whatever its tokens."""
        if line.backend is None:
            return group.best(tried)
        pinned = self._fleet.get(line.backend)
        if pinned is None or pinned in tried or pinned.is_blocked or pinned not in group.members:
            return None
        return pinned if pinned.window is None or pinned.in_flight < pinned.window else None

    def _is_too_late_for_the_first(self, line: Line, pool: Pool, now: float) -> bool:
        first = self._queue.head((line, line.on_other_path()), now)
        if first is None or first.lease is not None:
            return False
        service = self._forecast.service_seconds(pool.name, first.tag, _DISPATCH_DEVIATIONS)
        return self._is_hopeless(first.tag, service, now)

    # --- all who wait ---------------------------------------------------------------------------------------------------------

    def granted(self, now: float) -> Iterator[tuple[Ticket, Choice]]:
        """One after the other, each out of the queue already; the caller takes the slot before it asks for the next."""
        self.look_at = inf
        # What was said of a request's outlook when it came holds as long as the fleet is what it was; of a moved one's, as long as it is first.
        if self._seen_version != self._fleet.version or self._queue.has_express:
            self._seen_version = self._fleet.version
            for line in list(self._queue.lines()):
                assert isinstance(line, Line)
                yield from self._without_backend(line, now)
        keeps = self.tokens.keeps
        for pool in self._fleet.pools.values():
            if keeps:
                self.tokens.ask_anew(pool.name)
            if self.reserve.has_slot_for_any(pool) and (places := self._open_to(pool)):
                yield from self._of_pool(pool, places, now)

    def _without_backend(self, line: Line, now: float) -> Iterator[tuple[Ticket, Choice]]:
        """Heads that no backend is left for."""
        queue = self._queue
        while (ticket := queue.head((line,), now)) is not None:
            outlook = self.outlook(line, ticket.lease.tried if ticket.lease is not None else ())
            if outlook is QUEUE_FULL:
                return
            queue.remove(ticket)
            yield ticket, outlook

    def _of_pool(self, pool: Pool, places: Places, now: float) -> Iterator[tuple[Ticket, Choice]]:
        """The pool has a slot for somebody of these lines."""
        queue = self._queue
        lanes: tuple[Lane, ...] | None = None
        paths_compete = len(places) > 1 and len({line.path for line in places}) > 1
        while places:
            ticket = queue.head(places, now, lanes)
            if ticket is None:
                return
            if paths_compete and self._placement.paths.gives_way(pool, ticket.line.path):
                ticket = self._of_other_path(pool, ticket, places, now) or ticket
            tag, line = ticket.tag, ticket.line
            # A group of a model that no engine has told is not kept, and true only now.
            groups, place = self._fleet.groups(line.model, line.pools), places[line]
            group = groups[place]
            moved = ticket.lease
            tried = moved.tried if moved is not None else ()
            backend = None
            has_slot = self.reserve.has_slot(pool, tag)
            if has_slot and group is not None and (place == 0 or self._may_enter(place, groups, tag)):
                backend = self._free(group, line, tag, tried, now)
                if backend is None and pool.name == self._home(line):
                    avoided = self.to_avoid(group, line, tag, tried)
                    self.tokens.keep(pool.name, self._with_slot(group, line, avoided), ticket)
            if backend is None:
                if not has_slot:
                    if tag.lane is BATCH and pool.is_batch_full:
                        lanes = _ABOVE_BATCH
                        continue
                    # The rest is the emergencies'.
                    if tag.lane is EMERGENCY or not queue.waiting_in_lane(EMERGENCY):
                        return
                    lanes = _EMERGENCIES
                else:
                    places = _without(places, line)
                continue
            service, is_hopeless = 0.0, False
            if tag.deadline != inf:
                service = self._forecast.service_seconds(pool.name, tag, _DISPATCH_DEVIATIONS)
                is_hopeless = moved is None and self._is_hopeless(tag, service, now)
            if is_hopeless:
                # Too slow here. A guest may still be in time at home; at home its time is over.
                if pool.name == self._home(line):
                    queue.remove(ticket)
                    yield ticket, Refusal.DEADLINE
                else:
                    places = _without(places, line)
                continue
            if pool.gathering is not None and tag.lane in _THROUGHPUT and moved is None:
                hold = self._hold(pool, backend, ticket, service, now)
                if hold > 0.0:
                    self.look_at = min(self.look_at, now + hold)
                    if self._held.get(pool.name) != ticket.id:
                        self._held[pool.name] = ticket.id
                        self._counts.holds[pool.name] += 1
                    lanes = _URGENT
                    continue
                yield from self._batch(pool, backend, ticket, now)
            else:
                queue.take(ticket, now)
                if place and moved is None:
                    self.order.count_spill(groups, place)
                yield ticket, backend
            if not self.reserve.has_slot_for_any(pool):
                return

    def _may_enter(self, place: int, groups: Sequence[Group | None], tag: Tag) -> bool:
        realtime = is_realtime(tag.lane, tag.prompt_tokens, tag.output_tokens, self._pool_choice)
        return self.order.may_enter(place, groups, realtime)

    def _open_to(self, pool: Pool) -> Places:
        """The lines of which somebody may come to this pool now."""
        places, at_home = self._ways.to(pool)
        if len(places) == len(at_home):
            return places
        urgent = self._queue.has_express or self._queue.waiting_in_lane(INTERACTIVE) > 0
        return places if self.order.takes_guests(pool, urgent) else at_home

    def _of_other_path(
        self, pool: Pool, ticket: Ticket, open_lines: Iterable[Line], now: float
    ) -> Ticket | None:
        """The next of the same lane, where the first in turn is of the path that has its share.

        Who goes before everybody gives way to nobody, nor does who has no time to spare before its deadline."""
        tag = ticket.tag
        if ticket.lease is not None or tag.lane is EMERGENCY:
            return None
        if tag.deadline != inf:
            service = self._forecast.service_seconds(pool.name, tag, _DISPATCH_DEVIATIONS)
            if not has_time_to_spare(tag.deadline - now - service, tag.target_seconds):
                return None
        others = [line for line in open_lines if line.path is not ticket.line.path]
        return self._queue.head(others, now, (ticket.tag.lane,))

    def _hold(self, pool: Pool, backend: Backend, ticket: Ticket, service: float, now: float) -> float:
        assert pool.gathering is not None
        waiting = sum(self._queue.waiting_in_lane(lane) for lane in _gathered(pool))
        return hold_seconds(
            ticket.tag.lane,
            waiting,
            now - ticket.arrived,
            ticket.tag.deadline - now - service,
            _free_of(backend),
            backend.in_flight,
            self._throughput_arrivals.per_second(now),
            pool.gathering,
        )

    def _batch(
        self, pool: Pool, backend: Backend, first: Ticket, now: float
    ) -> Iterator[tuple[Ticket, Choice]]:
        """The first and those that come after it in its line, to one backend."""
        assert pool.gathering is not None
        line, queue = first.line, self._queue
        groups, place = self._fleet.groups(line.model, line.pools), line.pools.index(pool.name)
        lacking = pool.gathering.min_requests - backend.in_flight
        most = group_size(queue.waiting_in_line(line), _free_of(backend), pool.gathering)
        sent = 0
        ticket: Ticket | None = first
        while ticket is not None:
            queue.take(ticket, now)
            sent += 1
            if place:
                self.order.count_spill(groups, place)
            yield ticket, backend
            ticket = self._next_of_batch(pool, backend, line, now) if sent < most else None
        self._counts.gathered(pool.name, sent, max(sent, lacking))

    def _next_of_batch(self, pool: Pool, backend: Backend, line: Line, now: float) -> Ticket | None:
        """Who may go along, where there is one."""
        ticket = self._queue.head((line,), now, _gathered(pool))
        if ticket is None or ticket.lease is not None or not self.reserve.has_slot(pool, ticket.tag):
            return None
        return ticket if self.tokens.fits(backend, ticket.tag) else None

    def _is_hopeless(self, tag: Tag, service_seconds: float, now: float) -> bool:
        return tag.deadline != inf and hopeless(now, tag.deadline, service_seconds, tag.lane, self._shedding)


def _without(places: Places, line: Line) -> Places:
    return {one: place for one, place in places.items() if one != line}


def _gathered(pool: Pool) -> Sequence[Lane]:
    """The lanes whose requests may go in one batch: who waits for the batch lane's share holds up nobody."""
    return (STANDARD,) if pool.is_batch_full else _THROUGHPUT


def _free_of(backend: Backend) -> int:
    return 1_000_000 if backend.window is None else backend.window - backend.in_flight
