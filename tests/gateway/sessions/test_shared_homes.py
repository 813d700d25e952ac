"""Gateways that share a store send a session to one backend; a store that is away costs only that."""

from __future__ import annotations

from gateway.sessions.memory import MemoryStore
from gateway.sessions.shared_homes import SharedHomes
from gateway.sessions.store import Home, SessionKey, StoreFault, StoreUnavailable, session_key
from policies.session_window import WindowRules
from policies.terms import BackendId, PoolName, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules
from tests.routing.prompts import of

KEY = session_key("anonymous", "chat-1")
SESSION = 77
BACKENDS = 6


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CountedStore(MemoryStore):
    asked = 0
    is_away = False

    async def home(self, key: SessionKey) -> Home | None:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable(StoreFault.TIMEOUT)
        return await super().home(key)


class Node:
    """A gateway's core with what it shares."""

    def __init__(self, store: CountedStore, clock: Clock, name: str, fresh_seconds: float = 5.0) -> None:
        rules = Rules()
        self.router = Router(rules)
        # Each node in an order of its own: what they agree on they learnt.
        order = sorted(range(BACKENDS), key=lambda n: (n * (7 if name == "one" else 5)) % 11)
        self.router.configure([BackendPlan(BackendId(f"b{n}"), PoolName("p"), None) for n in order], rules)
        self.store = store
        self.clock = clock
        self.written: list[tuple[SessionKey, Home, float]] = []
        self.homes = SharedHomes(
            store,
            lambda key, home, ttl: self.written.append((key, home, ttl)),
            self.router,
            fresh_seconds,
            lambda: 60.0,
            clock,
        )

    async def turn(self, intent: Intent, backend: BackendId | None = None) -> Lease:
        intent = intent._replace(backend=backend)
        if self.homes.must_ask(SESSION):
            await self.homes.ask(SESSION, KEY)
        lease = self.router.arrive("", self.clock.now, intent)
        assert isinstance(lease, Lease)
        lease.verdict = Verdict.GOOD
        self.router.finish(lease, self.clock.now)
        self.homes.went(KEY, lease)
        await self.store.set_homes(self.written)
        return lease


def prompt(*blocks: str) -> Intent:
    intent = of(*blocks)
    assert intent.key is not None
    return intent._replace(key=intent.key._replace(session=SESSION))


def stage(**options: float) -> tuple[CountedStore, Clock, Node, Node]:
    clock = Clock()
    store = CountedStore(WindowRules(), 100, 1_000_000, clock)
    return store, clock, Node(store, clock, "one", **options), Node(store, clock, "two", **options)


async def test_the_next_turn_goes_to_the_same_backend_through_another_gateway() -> None:
    _, _, one, two = stage()
    for number in range(BACKENDS):
        home = BackendId(f"b{number}")
        first = await one.turn(prompt("a", "b"), home)
        assert first.backend.id == home
        one.clock.now += 10.0  # what both know is no longer fresh
        second = await two.turn(prompt("a", "b", "c"))
        assert second.backend.id == home
        assert second.known_depth > 0, "the prefix is known as well as the backend"
        one.clock.now += 10.0


async def test_what_is_fresh_is_not_asked_for_and_what_is_not_is() -> None:
    store, clock, one, _ = stage(fresh_seconds=5.0)
    await one.turn(prompt("a"))
    assert store.asked == 1
    clock.now = 5.0
    await one.turn(prompt("a"))
    assert store.asked == 1
    clock.now = 10.5
    await one.turn(prompt("a"))
    assert store.asked == 2


async def test_a_home_is_told_when_it_changes_and_before_it_expires() -> None:
    _, clock, one, _ = stage()
    for _ in range(5):
        await one.turn(prompt("a"))
    assert len(one.written) == 1
    assert one.written[0][2] == 60.0
    await one.turn(prompt("a", "b"))
    assert len(one.written) == 2, "a longer prompt"
    clock.now = 16.0  # a quarter of the time to live
    await one.turn(prompt("a", "b"))
    assert len(one.written) == 3


async def test_a_store_that_is_away_and_a_backend_that_is_gone_leave_the_session_to_the_router() -> None:
    store, clock, one, two = stage()
    store.is_away = True
    await one.turn(prompt("a"))
    store.is_away = False
    await store.set_homes([(KEY, Home("left-the-fleet"), 60.0)])
    clock.now = 10.0
    assert (await two.turn(prompt("a"))).backend.id.startswith("b")
