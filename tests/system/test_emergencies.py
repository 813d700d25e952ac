"""Full windows: emergencies and their reserve, the shares of tenants and lanes, and how much of the queue one of them may fill."""

from __future__ import annotations

from contextlib import AsyncExitStack
from hashlib import sha256

from gateway.settings import (
    BatchLaneSettings,
    BusinessTypeSettings,
    EmergencySettings,
    LanesSettings,
    MatchSettings,
    QueueSettings,
    TenantSettings,
)
from policies.terms import Lane
from tests.backend import Backend
from tests.running import running
from tests.system.crowd import (
    BATCH,
    INTERACTIVE,
    Crowd,
    Header,
    Held,
    assert_refused,
    clock_passes,
    question,
    route,
)

BANK: Header = (b"Authorization", b"Bearer bank-key")
SHOP: Header = (b"Authorization", b"Bearer shop-key")
EMERGENCY: Header = (b"x-headrace-lane", b"emergency")
TENANTS = (
    TenantSettings(
        name="bank", key_sha256=(sha256(b"bank-key").hexdigest(),), max_lane=Lane.EMERGENCY, weight=3
    ),
    TenantSettings(name="shop", key_sha256=(sha256(b"shop-key").hexdigest(),)),
)


async def test_emergencies_use_the_reserve_and_overtake_whoever_waits() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=4, tenants=TENANTS) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        for number in (0, 1, 2, 3):
            await crowd.send(number, BANK, INTERACTIVE)
        await held.has(0, 1)  # two of the four slots are the emergencies'
        assert gateway.gateway.router.waiting == 2
        await crowd.send(10, BANK, EMERGENCY)
        await crowd.send(11, BANK, EMERGENCY)
        await crowd.send(12, BANK, EMERGENCY)
        await held.has(0, 1, 10, 11)
        held.let(0)
        await held.has(0, 1, 10, 11, 12)
        held.let(10)
        await held.has(0, 1, 10, 11, 12, 2)
        held.let(*range(20))
        lanes = [(await crowd.route(number))["lane"] for number in (10, 11, 12, 2, 3)]
        assert lanes == ["emergency"] * 3 + ["interactive"] * 2


async def test_without_anybody_who_may_use_it_there_is_no_reserve() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=4) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        for number in range(5):
            await crowd.send(number, EMERGENCY)
        await held.has(0, 1, 2, 3)
        held.let(*range(5))
        assert (await crowd.route(4))["lane"] == "interactive"


async def test_emergencies_beyond_their_budget_wait_as_interactive_ones() -> None:
    lanes = LanesSettings(emergency=EmergencySettings(burst=2, reserved_per_pool=1))
    async with Backend() as backend, running(backend, tenants=TENANTS, lanes=lanes, window=2) as gateway:
        seen = [
            route(await gateway.post(question(number), headers=[BANK, EMERGENCY]))["lane"]
            for number in range(4)
        ]
        assert seen == ["emergency", "emergency", "interactive", "interactive"]


async def test_an_emergency_is_never_refused_for_its_deadline() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, tenants=TENANTS) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0, BANK)
        await crowd.send(1, BANK, EMERGENCY, (b"x-headrace-deadline-ms", b"1"))
        await clock_passes(0.01)
        held.let(0, 1)
        assert (await crowd.route(1))["lane"] == "emergency"


# --- shares ---------------------------------------------------------------------------------------------------------------------


async def test_two_tenants_get_slots_by_their_weights_whoever_came_first() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, tenants=TENANTS) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        for number in range(1, 13):
            await crowd.send(number, SHOP)
        for number in range(101, 113):
            await crowd.send(number, BANK)
        await held.serve(17)
        first = held.order[1:17]
        assert 11 <= sum(number > 100 for number in first) <= 13, first
        held.let(*range(1, 13), *range(101, 113))
        for number in (*range(1, 13), *range(101, 113)):
            assert (await crowd.answer(number)).status == 200


async def test_interactive_requests_pass_batch_ones_that_wait_but_do_not_shut_them_out() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        for number in range(1, 5):
            await crowd.send(number, BATCH)
        for number in range(101, 121):
            await crowd.send(number, INTERACTIVE)
        await held.serve(25)
        early = [number for number in held.order[1:11] if number < 101]
        assert 1 <= len(early) <= 3, held.order


async def test_one_flow_may_not_fill_the_queue() -> None:
    held = Held()
    types = (BusinessTypeSettings(name="cards", match=MatchSettings(keywords=("card",))),)
    async with (
        held.backend as backend,
        running(
            backend,
            window=1,
            tenants=TENANTS,
            business_types=types,
            queue=QueueSettings(max_waiting_per_flow=2),
        ) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        for number in range(3):
            await crowd.send(number, SHOP)
        for body in (question(9), {**question(9), "stream": True}):
            assert_refused(await gateway.post(body, headers=[SHOP]), 429, b"over_share")
        await crowd.send(3, SHOP, text="card")
        await crowd.send(4, BANK)
        assert gateway.metric("headrace_refusals_total", reason="over_share") == 2
        held.let(*range(5))
        for number in range(5):
            assert (await crowd.answer(number)).status == 200
        held.let(9)
        assert (await gateway.post(question(9), headers=[SHOP])).status == 200


async def test_a_full_queue_lets_go_of_its_newest_batch_request_for_an_interactive_one() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, queue=QueueSettings(max_waiting=2)) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        await crowd.send(1, BATCH)
        await crowd.send(2, BATCH)
        newcomer = await stack.enter_async_context(await gateway.begin(question(3), headers=[INTERACTIVE]))
        assert_refused(await crowd.answer(2), 503, b"queue_full")
        assert_refused(await gateway.post(question(4), headers=[BATCH]), 503, b"queue_full")
        held.let(*range(5))
        assert route(await newcomer.read_answer())["lane"] == "interactive"
        assert (await crowd.route(1))["lane"] == "batch"


async def test_a_lane_may_have_a_longest_wait_of_its_own() -> None:
    held = Held()
    lanes = LanesSettings(batch=BatchLaneSettings(max_wait_seconds=0.02))
    async with (
        held.backend as backend,
        running(backend, window=1, lanes=lanes) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        await crowd.send(1)
        assert_refused(await gateway.post(question(2), headers=[BATCH]), 504, b"queue_timeout")
        held.let(0, 1)
        assert (await crowd.route(1))["lane"] == "standard"
