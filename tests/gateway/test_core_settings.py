"""From `Settings` to what the decision core does: queue, lanes, emergencies, lengths, shedding, retries. Pools are in `test_pool_settings`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BatchLaneSettings,
    EmergencySettings,
    InteractiveLaneSettings,
    LaneSettings,
    LanesSettings,
    LengthSettings,
    PoolSettings,
    QueueSettings,
    RetrySettings,
    ServerSettings,
    Settings,
    SheddingSettings,
    TenantSettings,
    WindowSettings,
)
from policies.lengths import TextSize
from policies.terms import Lane, LengthClass, Refusal, Verdict
from routing.decision import Intent, Lease, Ticket
from routing.preemption import Running
from routing.router import Router
from tests.backend import Backend, Gate, Script
from tests.emulator.running import until
from tests.gateway.core_stage import at_once, ends_well, learn_service, leased, queued, router_of, served_of
from tests.running import running_with

EMERGENCY = Intent(lane=Lane.EMERGENCY)
ANYBODY = AnonymousSettings(max_lane=Lane.EMERGENCY)
"""Who may use the emergency lane."""


def settings(window: int | None = 1, **sections: Any) -> Settings:
    """One pool of one backend, and sections of `Settings` by name."""
    pool = PoolSettings(
        name="p",
        window=None if window is None else WindowSettings(max=window),
        backends=(BackendSettings(url="http://b"),),
    )
    return replace(Settings(pools=(pool,)), **sections)


def core(window: int | None = 1, **sections: Any) -> Router:
    return router_of(settings(window, **sections))


# --- queue and lanes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_max_waiting_per_flow_bounds_one_flow_and_leaves_room_to_the_others(most: int) -> None:
    router = core(queue=QueueSettings(max_waiting_per_flow=most))
    leased(router)
    for _ in range(most):
        queued(router, 0.0, Intent(tenant="greedy"))
    assert router.arrive("", 0.0, Intent(tenant="greedy")) is Refusal.OVER_SHARE
    queued(router, 0.0, Intent(tenant="other"))
    queued(router, 0.0, Intent(tenant="greedy", business="another"))


LANES = {lane.value: Intent(lane=lane) for lane in (Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH)}


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ((8, 4, 1), (80, 40, 10)),
        ((1, 4, 8), (10, 40, 80)),
        ((4, 5, 4), (40, 50, 40)),
        ((4, 4, 5), (40, 40, 50)),
    ],
)
def test_lanes_that_compete_are_served_in_proportion_to_their_weights(
    weights: tuple[float, float, float], shares: tuple[int, int, int]
) -> None:
    interactive, standard, batch = weights
    lanes = LanesSettings(
        interactive=InteractiveLaneSettings(weight=interactive),
        standard=LaneSettings(weight=standard),
        batch=BatchLaneSettings(weight=batch),
    )
    served = served_of(core(lanes=lanes), LANES, 130)
    assert [served[lane] for lane in LANES] == [pytest.approx(share, abs=3) for share in shares]


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_fairness_weight_is_the_share_of_interactive_requests_whatever_their_lanes_weight(
    share: float,
) -> None:
    served = served_of(core(queue=QueueSettings(fairness_weight=share)), LANES, 200)
    assert served["interactive"] == pytest.approx(200 * share, abs=3)
    assert served["standard"] == pytest.approx(200 * (1 - share) * 4 / 5, abs=3), "as the other lanes weigh"


ONE_LANE_SHORT = {
    Lane.EMERGENCY: LanesSettings(emergency=EmergencySettings(max_wait_seconds=0.01)),
    Lane.INTERACTIVE: LanesSettings(interactive=InteractiveLaneSettings(max_wait_seconds=0.01)),
    Lane.STANDARD: LanesSettings(standard=LaneSettings(max_wait_seconds=0.01)),
    Lane.BATCH: LanesSettings(batch=BatchLaneSettings(max_wait_seconds=0.01)),
}


@pytest.mark.parametrize("short", ONE_LANE_SHORT)
async def test_max_wait_seconds_of_a_lane_bound_its_own_requests_alone(short: Lane) -> None:
    gate = Gate()
    async with Backend(lambda _: Script(before_head=gate)) as backend:
        configured = settings(
            pools=(
                PoolSettings(
                    name="p",
                    window=WindowSettings(max=1),
                    backends=(BackendSettings(url=backend.url),),
                ),
            ),
            server=ServerSettings(port=0),
            queue=QueueSettings(max_wait_seconds=3600),
            lanes=ONE_LANE_SHORT[short],
            anonymous=ANYBODY,
        )
        async with running_with(configured) as gateway:
            held = [await gateway.begin({})]
            await backend.exchange()
            held += [
                await gateway.begin({}, headers=[(b"x-headrace-lane", lane.encode())])
                for lane in ONE_LANE_SHORT
                if lane is not short
            ]
            await until(lambda: gateway.gateway.router.waiting == 3)
            answer = await gateway.post({}, headers=[(b"x-headrace-lane", short.encode())])
            assert (answer.status, answer.value(b"x-headrace-reason")) == (504, b"queue_timeout")
            assert gateway.gateway.router.waiting == 3
            gate.set()
            for connection in held:
                assert (await connection.read_answer()).status == 200
                connection.close()


# --- emergencies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserved", [0, 1, 3])
def test_reserved_per_pool_is_kept_free_for_emergencies(reserved: int) -> None:
    lanes = LanesSettings(emergency=EmergencySettings(reserved_per_pool=reserved))
    router = core(8, lanes=lanes, anonymous=ANYBODY)
    assert at_once(router) == 8 - reserved
    assert at_once(router, EMERGENCY) == reserved


@pytest.mark.parametrize(
    ("ceiling", "tenants", "free"),
    [
        (Lane.INTERACTIVE, (), 8),
        (Lane.EMERGENCY, (), 6),
        (Lane.INTERACTIVE, (TenantSettings(name="t", max_lane=Lane.EMERGENCY),), 6),
    ],
)
def test_nothing_is_reserved_where_nobody_may_use_it(
    ceiling: Lane, tenants: tuple[TenantSettings, ...], free: int
) -> None:
    assert at_once(core(8, anonymous=AnonymousSettings(max_lane=ceiling), tenants=tenants)) == free


@pytest.mark.parametrize(("share", "borrowed"), [(0, 0), (0.5, 2), (1, 4)])
def test_lending_share_of_the_reserve_is_lent_to_short_requests(share: float, borrowed: int) -> None:
    lanes = LanesSettings(emergency=EmergencySettings(reserved_per_pool=4, lending_share=share))
    for service_seconds, lent in ((0.1, borrowed), (60.0, 0)):
        router = core(8, lanes=lanes, anonymous=ANYBODY)
        learn_service(router, service_seconds)
        assert at_once(router) == 4 + lent


@pytest.mark.parametrize("burst", [1, 4])
def test_burst_is_how_many_emergencies_may_come_at_once_and_the_rest_count_as_interactive(burst: int) -> None:
    router = core(None, lanes=LanesSettings(emergency=EmergencySettings(burst=burst)), anonymous=ANYBODY)
    lanes = [leased(router, 0.0, EMERGENCY).tag.lane for _ in range(burst + 2)]
    assert lanes == [Lane.EMERGENCY] * burst + [Lane.INTERACTIVE] * 2


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_budget_share_of_what_the_fleet_serves_is_what_emergencies_may_use_over_time(share: float) -> None:
    emergency = EmergencySettings(budget_share=share, burst=1)
    router = core(None, lanes=LanesSettings(emergency=emergency), anonymous=ANYBODY)
    for at, count in ((10.0, 100), (20.0, 1)):
        for _ in range(count):
            ends_well(router, leased(router, at), at)
    assert router.forecast.served_per_second == pytest.approx(10)
    lanes = [leased(router, 20.0 + second, EMERGENCY).tag.lane for second in range(100)]
    assert lanes.count(Lane.EMERGENCY) == pytest.approx(100 * 10 * share, abs=2)


@pytest.mark.parametrize("preemption", [True, False])
def test_preemption_lets_a_running_batch_request_give_way_to_an_emergency(preemption: bool) -> None:
    emergency = EmergencySettings(preemption=preemption)
    router = core(lanes=LanesSettings(emergency=emergency), anonymous=ANYBODY)
    batch = leased(router, 0.0, Intent(lane=Lane.BATCH))
    queued(router, 0.0, EMERGENCY)
    chosen = router.preemption.choose(lambda: [Running(batch, 0.0)], 1.0)
    assert chosen == ([batch] if preemption else [])


# --- lengths, shedding, retries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "classes"),
    [
        (LengthSettings(), (LengthClass.SHORT, LengthClass.MEDIUM, LengthClass.LONG)),
        (LengthSettings(short_below=601), (LengthClass.SHORT, LengthClass.SHORT, LengthClass.LONG)),
        (LengthSettings(long_above=599), (LengthClass.SHORT, LengthClass.LONG, LengthClass.LONG)),
        (LengthSettings(long_above=9000), (LengthClass.SHORT, LengthClass.MEDIUM, LengthClass.MEDIUM)),
    ],
)
def test_short_below_and_long_above_part_the_prompts(
    lengths: LengthSettings, classes: tuple[LengthClass, ...]
) -> None:
    router = core(None, lengths=lengths)
    sizes = [TextSize(token_ids=tokens) for tokens in (100, 600, 9000)]
    assert tuple(leased(router, 0.0, Intent(size=size)).tag.length for size in sizes) == classes


@pytest.mark.parametrize(
    ("shedding", "target_seconds", "is_refused"),
    [
        (SheddingSettings(), 12, True),
        (SheddingSettings(), 100, False),
        (SheddingSettings(enabled=False), 12, False),
        (SheddingSettings(margin=5), 12, False),
        (SheddingSettings(margin=0.1), 100, True),
    ],
)
def test_a_wait_beyond_margin_times_the_time_that_is_left_is_refused_at_once_where_shedding_is_enabled(
    shedding: SheddingSettings, target_seconds: float, is_refused: bool
) -> None:
    """Fifteen wait and one is served per second, so a newcomer waits for some 16 s."""
    router = core(shedding=shedding)
    running = leased(router)
    for _ in range(40):
        queued(router)
    for second in range(1, 26):
        ends_well(router, running, second)
        [(_, grant)] = router.pump(second)
        assert isinstance(grant, Lease)
        running = grant
    decision = router.arrive("", 25.0, Intent(target_seconds=target_seconds))
    assert decision is Refusal.OVERLOADED if is_refused else isinstance(decision, Ticket)


@pytest.mark.parametrize(
    ("shedding", "is_refused"),
    [
        (SheddingSettings(), True),
        (SheddingSettings(enabled=False), False),
        (SheddingSettings(standing_share=0.9), False),
        (SheddingSettings(standing_seconds=1.8), False),
    ],
)
def test_a_queue_stands_after_standing_seconds_in_which_nobody_waited_less_than_standing_share_of_the_target(
    shedding: SheddingSettings, is_refused: bool
) -> None:
    router = core(shedding=shedding)
    leased(router)
    decisions = [router.arrive("", step / 10, Intent(target_seconds=2.0)) for step in range(24)]
    assert (Refusal.STANDING_QUEUE in decisions) is is_refused


@pytest.mark.parametrize(
    ("shedding", "is_given_up"),
    [
        (SheddingSettings(), True),
        (SheddingSettings(margin=2), False),
        (SheddingSettings(enabled=False), False),
    ],
)
def test_who_can_no_longer_be_served_within_margin_times_the_time_that_is_left_is_given_up(
    shedding: SheddingSettings, is_given_up: bool
) -> None:
    router = core(shedding=shedding)
    learn_service(router, 1.0)
    running = leased(router)
    queued(router, 0.0, Intent(target_seconds=1.5))
    ends_well(router, running, 0.8)
    [(_, grant)] = router.pump(0.8)
    assert grant is Refusal.DEADLINE if is_given_up else isinstance(grant, Lease)


@pytest.mark.parametrize(
    ("share", "floor", "allowed"), [(0, 0, 0), (0, 1, 1), (0, 3, 3), (0.25, 0, 2), (0.5, 0, 4), (0.1, 6, 6)]
)
def test_second_tries_are_bound_by_the_greater_of_budget_share_and_budget_floor(
    share: float, floor: int, allowed: int
) -> None:
    backends = (BackendSettings(url="http://b"), BackendSettings(url="http://c"))
    router = core(
        pools=(PoolSettings(name="p", backends=backends),),
        retries=RetrySettings(budget_share=share, budget_floor=floor),
    )
    leases = [leased(router) for _ in range(8)]
    assert sum(router.move(lease, Verdict.FAULT, False, True, 0.0) for lease in leases) == allowed
