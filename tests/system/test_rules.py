"""Degradation rules over sockets: emulated engines read by the real probes, with all durations scaled down by the configuration.

What a time has to be at least is compared with clocks; nothing is expected to be fast.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.alert_settings import AlertReceiverSettings, AlertSettings
from gateway.degradation_settings import DegradationSettings, RuleSettings
from gateway.emulator.metrics_page import MEMORY_MIB
from gateway.emulator.server import EmulatedServer
from gateway.emulator.settings import EngineSettings
from gateway.gpu_settings import GpuSettings
from gateway.monitoring_settings import MonitoringSettings
from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BatchingSettings,
    PoolSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
    WindowSettings,
)
from policies.degradation_actions import NO_EFFECTS
from policies.metric_catalogue import Metric
from policies.pool_choice import PoolTag
from policies.terms import Lane
from routing.degradation import Instance
from tests import client
from tests.backend import Backend, json_script
from tests.emulator.running import engine, until
from tests.running import Running, running_with
from tests.system.crowd import assert_refused, route

HOUR = 3600.0
SCALE = 0.0005
"""5 minutes are 0.15 seconds."""
QUICK = DegradationSettings(interval_seconds=0.01, time_scale=SCALE)
SLOW = EngineSettings(time_scale=100.0)
"""Holds what it is sent until the client leaves."""
JSON = (b"Content-Type", b"application/json")
BATCH = (b"x-headrace-lane", b"batch")
STANDARD = (b"x-headrace-lane", b"standard")


def backend(server: EmulatedServer, name: str) -> BackendSettings:
    """Its GPU is told of on its own page."""
    gpu = GpuSettings(url=f"{server.url}/metrics", interval_seconds=0.05, stale_seconds=60)
    return BackendSettings(url=server.url, name=name, gpu=gpu)


def pool(name: str, *servers: EmulatedServer, window: int = 20, **fields: Any) -> PoolSettings:
    backends = tuple(backend(server, f"{name}{index}") for index, server in enumerate(servers))
    return PoolSettings(name=name, window=WindowSettings(max=window), backends=backends, **fields)


@asynccontextmanager
async def gateway_of(*pools: PoolSettings, **sections: Any) -> AsyncIterator[Running]:
    settings = Settings(
        **{
            "pools": pools,
            "server": ServerSettings(port=0),
            "degradation": QUICK,
            "probes": ProbeSettings(load_seconds=0.05),
            "monitoring": MonitoringSettings(primary_seconds=0.2),
            "anonymous": AnonymousSettings(trust_headers=True),
            **sections,
        }
    )
    async with running_with(settings) as gateway:
        yield gateway


def instance(gateway: Running, rule: str, subject: str = "") -> Instance:
    [found] = [one for one in gateway.gateway.router.degradation.instances(rule) if one.subject == subject]
    return found


def windows(gateway: Running) -> list[int | None]:
    return [one.window for one in gateway.gateway.router.fleet]


def now() -> float:
    return asyncio.get_running_loop().time()


async def ask(
    gateway: Running, text: str = "hello", *headers: tuple[bytes, bytes], **fields: Any
) -> client.Answer:
    body = {"messages": [{"role": "user", "content": text}], **fields}
    return await gateway.post(body, headers=headers)


async def asking(
    gateway: Running, condition: Callable[[], bool], once: Callable[[int], Awaitable[object]]
) -> None:
    """One request after the other until it holds."""
    async with asyncio.timeout(client.WAIT_SECONDS):
        number = 0
        while not condition():
            await once(number)
            number += 1


async def busy(
    gateway: Running, stack: AsyncExitStack, count: int, text: str = "hello", **fields: Any
) -> AsyncExitStack:
    """So many requests run on the slow engine until the stack that is returned is closed."""
    inside = await stack.enter_async_context(AsyncExitStack())
    body = {"messages": [{"role": "user", "content": text}], **fields}
    for _ in range(count):
        await inside.enter_async_context(await gateway.begin(body))
    await until(lambda: sum(gateway.in_flight()) == count)
    return inside


# --- the field's breaker rules ------------------------------------------------------------------------------------------------------


async def test_a_gpu_at_90_degrees_gets_nothing_new_from_its_scrape_on_the_others_carry_on_and_an_alert_leaves() -> (
    None
):
    async with (
        engine() as hot,
        engine() as cool,
        Backend(lambda request: json_script({})) as receiver,
        gateway_of(
            pool("p", hot, cool),
            # No beat of the rules at all: it is the scrape that counts.
            degradation=DegradationSettings(interval_seconds=HOUR),
            alerts=AlertSettings(receivers=(AlertReceiverSettings(url=f"{receiver.url}/alerts"),)),
        ) as gateway,
    ):
        samples = gateway.gateway.router.samples
        p0 = next(iter(gateway.gateway.router.fleet))
        hot.faults.gpu_temperature_celsius = 85
        await until(
            lambda: (gpu := samples.gpu_of(p0.id)) is not None and gpu.report.temperature_celsius == 85
        )
        assert {route(await ask(gateway))["backend"] for _ in range(8)} == {"p0", "p1"}
        hot.faults.gpu_temperature_celsius = 90
        await until(
            lambda: (gpu := samples.gpu_of(p0.id)) is not None and gpu.report.temperature_celsius == 90
        )
        assert {route(await ask(gateway))["backend"] for _ in range(8)} == {"p1"}
        await receiver.until(lambda: any(one.body_complete.is_set() for one in receiver.exchanges))
        [event] = orjson.loads(receiver.exchanges[0].request.body)["events"]
        assert (event["rule"], event["subject"], event["severity"], event["state"]) == (
            "gpu-hot",
            "p0",
            "critical",
            "active",
        )
        assert (event["value"], event["threshold"], event["actions"]) == (90.0, 85.0, ["hold"])
        assert gateway.metric("headrace_rule_active", rule="gpu-hot", subject="p0") == 1
        assert gateway.metric("headrace_rule_active", rule="gpu-hot", subject="p1") == 0


async def test_a_gpu_that_has_cooled_down_gets_requests_again_and_nothing_is_left() -> None:
    async with engine() as hot, engine() as cool, gateway_of(pool("p", hot, cool)) as gateway:
        rule = instance(gateway, "gpu-hot", "p0")
        hot.faults.gpu_temperature_celsius = 90
        await until(lambda: rule.is_active)
        assert gateway.present() == [True, True], "it is held and not gone"
        hot.faults.gpu_temperature_celsius = 81
        await until(lambda: rule.value == 81)
        assert rule.is_active
        cooled_at = now()
        hot.faults.gpu_temperature_celsius = 80
        await until(lambda: not rule.is_active)
        assert rule.since - cooled_at >= 30 * SCALE
        assert {route(await ask(gateway))["backend"] for _ in range(8)} == {"p0", "p1"}
        assert not any(one.holds for one in gateway.gateway.router.fleet)


async def test_an_exporter_that_is_gone_does_not_hold_a_backend_for_ever_and_it_is_said_that_nothing_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Backend() as page, engine() as server:
        page.probes["/gpu"] = json_script({})
        page.probes["/gpu"] = replace(page.probes["/gpu"], chunks=[b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 90\n'])
        gpu = GpuSettings(url=f"{page.url}/gpu", interval_seconds=0.05, stale_seconds=0.3)
        one = BackendSettings(url=server.url, name="p0", gpu=gpu)
        async with gateway_of(PoolSettings(name="p", backends=(one,))) as gateway:
            rule = instance(gateway, "gpu-hot", "p0")
            await until(lambda: rule.is_active)
            assert_refused(await ask(gateway), 503, b"no_backend")
            await page.stop()
            gone_at = now()
            await until(lambda: not rule.is_active)
            assert rule.since - gone_at >= 0.2 + 30 * SCALE, "stale first, then the clear time"
            assert (await ask(gateway)).status == 200
            assert "gpu-hot has let go of backend p0: gpu_temperature_celsius is unknown" in caplog.text
            assert gateway.metric("headrace_rule_usable", rule="gpu-hot") == 0


async def test_caches_that_are_hit_too_rarely_close_the_cold_path_until_they_are_hit_again() -> None:
    hot, cold = (b"x-headrace-path", b"hot"), (b"x-headrace-path", b"cold")

    async with engine() as one, engine() as two, gateway_of(pool("p", one, two)) as gateway:
        rule = instance(gateway, "cache-hit-low")
        began_at = now()

        async def miss(number: int) -> None:
            await ask(gateway, f"{number} " * 200, hot)

        await asking(gateway, lambda: rule.is_active, miss)
        assert rule.since - began_at >= 300 * SCALE
        assert rule.value is not None and rule.value < 0.6
        answer = await ask(gateway, "hello", cold)
        assert_refused(answer, 503, b"cold_path_closed")
        assert answer.value(b"retry-after") is not None
        assert gateway.metric("headrace_refusals_total", reason="cold_path_closed") == 1

        async def hit(number: int) -> None:
            assert (await ask(gateway, "the same " * 200, hot)).status == 200

        await asking(gateway, lambda: not rule.is_active, hit)
        assert (await ask(gateway, "hello", cold)).status == 200
        left = replace(gateway.gateway.router.degradation.effects, window_shares=())
        assert left == NO_EFFECTS, "but for the memory policy, which always holds"


async def test_memory_that_swings_in_three_samples_running_halves_the_window_until_it_is_calm() -> None:
    async with engine() as server, gateway_of(pool("p", server)) as gateway:
        rule = instance(gateway, "memory-swing", "p0")
        samples, seen = gateway.gateway.router.samples, set()

        def swings() -> bool:
            """Another value for every scrape."""
            gpu = samples.gpu_of(next(iter(gateway.gateway.router.fleet)).id)
            if gpu is not None and gpu.at not in seen:
                seen.add(gpu.at)
                server.faults.gpu_memory_used_mib = (0.2 + 0.2 * (len(seen) % 2)) * MEMORY_MIB
            return rule.is_active

        server.faults.gpu_memory_used_mib = 0.2 * MEMORY_MIB
        await until(swings)
        assert len(seen) >= 4, "three swings are four samples"
        assert windows(gateway) == [10]
        await until(lambda: not rule.is_active)
        await until(lambda: windows(gateway) == [18])
        await until(lambda: gateway.gateway.router.degradation.effects.window_shares == (("p0", 0.9),))


async def test_batches_that_stay_empty_are_not_gathered_any_more_and_gathering_is_tried_again() -> None:
    batching = BatchingSettings(min=4, max=8, gather_ms=5, dynamic_scaling=False)
    async with engine() as server, gateway_of(pool("p", server, batching=batching)) as gateway:
        router = gateway.gateway.router
        rule, holds = instance(gateway, "batch-idle", "p"), router.counts.holds
        began_at = now()

        async def alone(number: int) -> None:
            assert (await ask(gateway, "hello", STANDARD)).status == 200

        await asking(gateway, lambda: rule.is_active, alone)
        assert rule.since - began_at >= 600 * SCALE and rule.value == 0.75
        [p] = router.fleet.pools.values()
        assert p.gathering is None
        held = dict(holds)
        await alone(0)
        assert dict(holds) == held, "nobody waits for others"
        await until(lambda: not rule.is_active)
        assert p.gathering is p.planned_gathering is not None
        assert router.degradation.effects.serial_pools == frozenset()


async def test_full_kv_caches_prefer_the_fallback_start_the_standby_and_limit_the_rate_until_there_is_room() -> (
    None
):
    small = replace(SLOW, kv_blocks=64, max_model_len=1024, prefill_tokens_per_second=1e7)
    async with (
        engine(small) as full,
        engine() as other,
        engine() as spare,
        gateway_of(
            pool("p", full),
            pool("f", other, tags=(PoolTag.FALLBACK,)),
            pool("s", spare, tags=(PoolTag.STANDBY,)),
        ) as gateway,
        AsyncExitStack() as stack,
    ):
        router, rule = gateway.gateway.router, instance(gateway, "kv-pressure", "p")
        standby = [one for one in router.fleet if one.pool == "s"]
        assert [one.is_blocked for one in standby] == [True]
        began_at = now()
        running = await busy(gateway, stack, 1, "word " * 770, max_tokens=20)
        await until(lambda: rule.is_active)
        assert rule.since - began_at >= 300 * SCALE and rule.value is not None and rule.value > 0.9
        assert [one.is_blocked for one in standby] == [False]
        served: list[client.Answer] = []

        async def once(number: int) -> None:
            served.append(await ask(gateway))

        await asking(gateway, lambda: bool(served) and served[-1].status != 200, once)
        assert {route(one)["pool"] for one in served[:-1]} <= {"f"}
        assert_refused(served[-1], 429, b"rate_limited")
        assert orjson.loads(served[-1].body)["error"]["type"] == "invalid_request_error"
        assert int(served[-1].value(b"retry-after") or 0) >= 1
        assert gateway.metric("headrace_refusals_total", reason="rate_limited") == 1
        await running.aclose()
        await until(lambda: not rule.is_active)
        assert [one.is_blocked for one in standby] == [True]
        answers = [await ask(gateway, "hello", (b"x-headrace-pool", b"f")) for _ in range(5)]
        assert [one.status for one in answers] == [200] * 5
        assert route(await ask(gateway, "hello", max_tokens=1))["pool"] == "p"
        assert router.degradation.effects.requests_per_second is None


async def test_nearly_full_memory_under_a_large_batch_halves_the_window_and_the_memory_policy_takes_over() -> (
    None
):
    async with engine(SLOW) as server, gateway_of(pool("p", server)) as gateway, AsyncExitStack() as stack:
        rule = instance(gateway, "memory-full", "p0")
        server.faults.gpu_memory_used_mib = 0.87 * MEMORY_MIB
        first = await busy(gateway, stack, 1)
        await until(lambda: windows(gateway) == [15])
        server.faults.gpu_memory_used_mib = 0.5 * MEMORY_MIB
        await until(lambda: windows(gateway) == [18])
        await first.aclose()
        await until(lambda: sum(gateway.in_flight()) == 0)
        running = await busy(gateway, stack, 17)
        await until(lambda: rule.while_value == 17)
        assert not rule.is_active
        server.faults.gpu_memory_used_mib = 0.87 * MEMORY_MIB
        await until(lambda: rule.is_active)
        assert windows(gateway) == [10] and sum(gateway.in_flight()) == 17
        await running.aclose()
        await until(lambda: windows(gateway) == [15])
        assert not rule.is_active


# --- the field's memory policy -----------------------------------------------------------------------------------------------------------


async def test_the_memory_that_is_used_says_how_much_of_the_window_is() -> None:
    async with engine() as server, gateway_of(pool("p", server)) as gateway:
        for used, window in ((0.5, 18), (0.61, 17), (0.81, 15), (0.76, 17), (0.56, 18)):
            server.faults.gpu_memory_used_mib = used * MEMORY_MIB
            await until(lambda window=window: windows(gateway) == [window])  # type: ignore[misc]


# --- operators ---------------------------------------------------------------------------------------------------------------------------

MINE = RuleSettings(
    name="mine",
    metric=Metric.SHED_RATIO,
    threshold=1,
    actions=("refuse_below standard", "clamp_max_tokens standard 5"),
)
ONLY_MINE = replace(QUICK, default_rules=False, time_scale=1)


async def force(
    gateway: Running, body: object, rule: str = "mine", raw: bytes | None = None
) -> client.Answer:
    content = orjson.dumps(body) if raw is None else raw
    return await gateway.send(client.request("POST", f"/admin/rules/{rule}", [JSON], content))


async def test_an_operator_forces_a_rule_on_and_off_with_an_end_and_all_of_it_is_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        engine() as server,
        gateway_of(pool("p", server), rules=(MINE,), degradation=ONLY_MINE) as gateway,
    ):
        assert (await ask(gateway, "hello", BATCH)).status == 200
        shown = orjson.loads((await force(gateway, {"force": "on", "seconds": 600, "by": "ann"})).body)
        [mine] = shown["rules"]
        [subject] = mine["subjects"]
        assert (subject["subject"], subject["active"], subject["forced"]) == ("", True, "on")
        assert subject["until"] > shown["audit"][0]["at"] + 599
        answer = await ask(gateway, "hello", BATCH)
        assert_refused(answer, 503, b"lane_refused")
        error = orjson.loads(answer.body)["error"]
        assert error == {
            "message": "Requests of this priority are not taken at the moment",
            "type": "service_unavailable",
            "param": None,
            "code": 503,
        }
        assert answer.value(b"retry-after") == b"5"
        assert gateway.metric("headrace_refusals_total", reason="lane_refused", lane="batch") == 1
        endings = gateway.gateway.router.endings
        assert (endings.asked[Lane.BATCH], endings.shed[Lane.BATCH]) == (1, 0), "a rule sheds nothing"
        served = orjson.loads((await ask(gateway, "hello", STANDARD, max_tokens=100)).body)
        assert served["usage"]["completion_tokens"] == 5
        shown = orjson.loads((await force(gateway, {"force": "off", "seconds": 1, "by": "bob"})).body)
        assert shown["rules"][0]["subjects"][0]["forced"] == "off"
        served = orjson.loads((await ask(gateway, "hello", STANDARD, max_tokens=100)).body)
        assert served["usage"]["completion_tokens"] == 100
        degradation = gateway.gateway.router.degradation
        await until(lambda: degradation.force_of(instance(gateway, "mine")) is None)
        assert (
            await force(gateway, {"force": "on", "subject": "", "seconds": 60, "by": "ann"})
        ).status == 200
        assert (await force(gateway, {"force": None, "by": "eve"})).status == 200
        assert (await ask(gateway, "hello", BATCH)).status == 200
        shown = orjson.loads((await gateway.get("/admin/rules")).body)
        assert [(entry["what"], entry["by"], entry["subject"]) for entry in shown["audit"]] == [
            ("on", "ann", None),
            ("off", "bob", None),
            ("expired", "bob", None),
            ("on", "ann", ""),
            ("released", "eve", None),
        ]
        audited = [line for line in caplog.messages if line.startswith("rule audit:")]
        assert audited == [
            "rule audit: mine of all subjects on for 600 s, by 'ann'",
            "rule audit: mine of all subjects off for 1 s, by 'bob'",
            "rule audit: mine of all subjects expired, by 'bob'",
            "rule audit: mine of the fleet on for 60 s, by 'ann'",
            "rule audit: mine of all subjects released, by 'eve'",
        ]
        assert gateway.metric("headrace_rule_transitions_total", rule="mine", state="active") == 2
        assert degradation.effects == NO_EFFECTS


async def test_the_page_shows_each_rule_with_its_state_what_all_do_together_and_what_cannot_work() -> None:
    async with (
        engine() as server,
        gateway_of(pool("p", server), degradation=replace(QUICK, ladder=True)) as gateway,
    ):
        rule = instance(gateway, "gpu-hot", "p0")
        server.faults.gpu_temperature_celsius = 90
        await until(lambda: rule.is_active)
        answer = await gateway.get("/admin/rules")
        shown = orjson.loads(answer.body)
        rules = {one["name"]: one for one in shown["rules"]}
        hot = rules["gpu-hot"]
        assert (hot["metric"], hot["operator"], hot["threshold"], hot["for_seconds"]) == (
            "gpu_temperature_celsius",
            ">",
            85.0,
            0.0,
        )
        assert (hot["clear_threshold"], hot["clear_seconds"], hot["actions"]) == (80.0, 30 * SCALE, ["hold"])
        [subject] = hot["subjects"]
        assert (subject["subject"], subject["active"], subject["phase"], subject["value"]) == (
            "p0",
            True,
            "active",
            90.0,
        )
        assert subject["seconds"] >= 0 and subject["forced"] is subject["until"] is None
        assert shown["effects"]["held"] == ["p0"]
        [idle] = rules["cache-hit-low"]["subjects"]
        assert (idle["active"], idle["seconds"], idle["value"]) == (False, None, None)
        assert rules["cache-hit-low"]["only_while"] == "hot_ratio > 0.5"
        assert rules["batch-idle"]["problems"] == ["no pool gathers requests"]
        assert rules["kv-pressure"]["problems"] == ["no pool is tagged fallback", "no pool is tagged standby"]
        assert rules["gpu-hot"]["problems"] == []
        assert [name for name in rules if name.startswith("ladder-")] == [
            f"ladder-{level}" for level in range(1, 6)
        ]


async def test_what_is_wrong_with_a_force_is_said_and_nothing_is_forced() -> None:
    fine = {"force": "on", "seconds": 60, "by": "ann"}
    wrong: list[tuple[object, str, str]] = [
        ({**fine, "force": "maybe"}, "force", '`force` has to be "on", "off" or null'),
        ({key: value for key, value in fine.items() if key != "force"}, "force", "`force` has to be"),
        ({**fine, "force": ["on"]}, "force", "`force` has to be"),
        ({**fine, "seconds": 0}, "seconds", "`seconds` has to say for how long, 1 to 604800"),
        ({**fine, "seconds": 604_801}, "seconds", "`seconds` has to say"),
        ({**fine, "seconds": "60"}, "seconds", "`seconds` has to say"),
        ({**fine, "seconds": True}, "seconds", "`seconds` has to say"),
        ({"force": "on", "by": "ann"}, "seconds", "`seconds` has to say"),
        ({**fine, "by": ""}, "by", "`by` has to say who does it, in 1 to 128 characters"),
        ({**fine, "by": "a" * 129}, "by", "`by` has to say"),
        ({**fine, "by": "a\nb"}, "by", "`by` has to say"),
        ({"force": "on", "seconds": 60}, "by", "`by` has to say"),
        ({**fine, "subject": "p9"}, "subject", "The rule has no such subject; it has: ['']"),
        ({**fine, "subject": 3}, "subject", "The rule has no such subject"),
        ({**fine, "until": 5}, "", "Unknown member 'until'; allowed: force, subject, seconds, by"),
        ({"force": None, "by": "ann"}, "force", "Nothing is forced for the rule"),
        ({"force": None, "subject": "", "by": "ann"}, "force", "Nothing is forced for this subject alone"),
        ([fine], "", "The body is not a JSON object"),
    ]
    async with (
        engine() as server,
        gateway_of(pool("p", server), rules=(MINE,), degradation=ONLY_MINE) as gateway,
    ):

        def assert_wrong(answer: client.Answer, param: str, says: str) -> None:
            assert_refused(answer, 400, b"bad_request")
            error = orjson.loads(answer.body)["error"]
            assert (error["param"] or "") == param and says in error["message"], error

        for body, param, says in wrong:
            assert_wrong(await force(gateway, body), param, says)
        assert_wrong(await force(gateway, None, raw=b"{"), "", "The body is not JSON")
        assert_wrong(await force(gateway, None, raw=b""), "", "The body is not JSON")
        assert_wrong(await force(gateway, None, raw=b" " * 70_000), "", "larger than a force needs")
        assert_wrong(await force(gateway, fine, "other"), "name", "There is no rule 'other'; there are: mine")
        answer = await gateway.get("/admin/rules/mine")
        assert_refused(answer, 405, b"method_not_allowed")
        assert "POST" in orjson.loads(answer.body)["error"]["message"]
        degradation = gateway.gateway.router.degradation
        assert degradation.effects == NO_EFFECTS and not degradation.forces.trail


async def test_the_ladders_level_is_in_the_route_of_answers_and_refusals_while_it_is_above_the_ground() -> (
    None
):
    async with (
        engine() as server,
        gateway_of(
            pool("p", server), degradation=replace(QUICK, ladder=True, default_rules=False)
        ) as gateway,
    ):
        assert "level" not in route(await ask(gateway, "hello", STANDARD))
        degradation = gateway.gateway.router.degradation
        now = asyncio.get_running_loop().time()
        degradation.force("ladder-3", None, True, now + HOUR, "ann", now)
        answer = await ask(gateway, "hello", STANDARD)
        assert (answer.value(b"x-headrace-route") or b"").endswith(b";level=3")
        refused = await ask(gateway, "hello", BATCH)
        assert_refused(refused, 503, b"lane_refused")
        assert refused.value(b"x-headrace-route") == b"level=3"
        degradation.unforce("ladder-3", None, "ann", now)
        assert "level" not in route(await ask(gateway, "hello", BATCH))
        assert (await gateway.post({"model": "nobody"})).value(b"x-headrace-route") is None
