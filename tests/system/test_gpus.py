"""GPUs of a whole gateway's backends: read from the page that is named for each, shown at `/metrics`, unknown when they are not heard of any more; and what requests count in rates over time."""

from __future__ import annotations

from typing import Any

from gateway.degradation_settings import DegradationSettings
from gateway.gpu_settings import GpuSettings
from gateway.monitoring_settings import MonitoringSettings
from gateway.settings import BackendSettings, PoolSettings, ServerSettings, Settings
from tests.backend import Backend, Script, json_script
from tests.emulator.running import until
from tests.running import Running, running_with

WELL = {
    "id": "c",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 600, "completion_tokens": 400, "total_tokens": 1000},
}


def dcgm(celsius: float, used: float = 60.0) -> Script:
    labels = '{gpu="0",Hostname="n"}'
    page = (
        f"DCGM_FI_DEV_GPU_TEMP{labels} {celsius}\nDCGM_FI_DEV_FB_USED{labels} {used}\n"
        f"DCGM_FI_DEV_FB_FREE{labels} {80 - used}\nDCGM_FI_DEV_GPU_UTIL{labels} 25\n"
    )
    return Script(chunks=[page.encode()])


def engine() -> Backend:
    return Backend(lambda _: json_script(WELL))


def settings(
    engine: Backend, gpu: GpuSettings | None = None, monitoring: Any = None, **backend: Any
) -> Settings:
    one = BackendSettings(url=engine.url, name="one", gpu=gpu, **backend)
    return Settings(
        pools=(PoolSettings(name="p", backends=(one,)),),
        server=ServerSettings(port=0),
        degradation=DegradationSettings(interval_seconds=0.05),
        monitoring=monitoring or MonitoringSettings(),
    )


def quick(exporter: Backend, **fields: Any) -> GpuSettings:
    return GpuSettings(**{"url": f"{exporter.url}/gpus", "interval_seconds": 0.05, **fields})


def has(gateway: Running, name: str) -> bool:
    return any(
        sample.name == f"headrace_{name}"
        for family in gateway.gateway.telemetry.registry.collect()
        for sample in family.samples
    )


async def test_a_backends_gpus_are_read_where_its_gpu_says_and_shown() -> None:
    async with engine() as one, Backend() as exporter:
        exporter.probes["/gpus"] = dcgm(71)
        async with running_with(settings(one, quick(exporter))) as gateway:
            await until(lambda: has(gateway, "gpu_temperature_celsius"))
            shown = {"backend": "one", "pool": "p"}
            assert gateway.metric("headrace_gpu_temperature_celsius", **shown) == 71.0
            assert gateway.metric("headrace_gpu_memory_used_ratio", **shown) == 0.75
            assert gateway.metric("headrace_gpu_utilisation_ratio", **shown) == 0.25
            assert 0.0 <= gateway.metric("headrace_gpu_sample_age_seconds", **shown) < 10.0
        async with running_with(settings(one)) as gateway:
            assert not has(gateway, "gpu_sample_age_seconds"), "without it nobody asks"


async def test_what_is_older_than_stale_seconds_is_absent_and_its_age_is_shown_all_the_same() -> None:
    async with engine() as one, Backend() as exporter:
        exporter.probes["/gpus"] = dcgm(71)
        async with running_with(settings(one, quick(exporter, stale_seconds=0.3))) as gateway:
            await until(lambda: has(gateway, "gpu_temperature_celsius"))
            exporter.probes["/gpus"] = Script(status=500)
            await until(lambda: not has(gateway, "gpu_temperature_celsius"))
            assert gateway.metric("headrace_gpu_sample_age_seconds") >= 0.3
            assert not has(gateway, "gpu_memory_used_ratio") and not has(gateway, "gpu_utilisation_ratio")
            exporter.probes["/gpus"] = dcgm(72)
            await until(lambda: gateway.metric("headrace_gpu_temperature_celsius") == 72.0)
        exporter.probes["/gpus"] = dcgm(71)
        async with running_with(settings(one, quick(exporter, stale_seconds=3600))) as gateway:
            await until(lambda: has(gateway, "gpu_temperature_celsius"))
            exporter.probes["/gpus"] = Script(status=500)
            await until(lambda: gateway.metric("headrace_gpu_sample_age_seconds") >= 0.3)
            assert gateway.metric("headrace_gpu_temperature_celsius") == 71.0


async def test_an_exporter_that_never_told_anything_has_an_age_too_and_one_that_is_configured_no_more_has_none() -> (
    None
):
    async with engine() as one, Backend() as exporter:
        exporter.probes["/gpus"] = Script(status=404)
        with_gpu = settings(one, quick(exporter))
        async with running_with(with_gpu) as gateway:
            await until(lambda: gateway.metric("headrace_gpu_sample_age_seconds") >= 0.2)
            assert not has(gateway, "gpu_temperature_celsius")
            gateway.gateway.configure(with_gpu)
            assert gateway.metric("headrace_gpu_sample_age_seconds") >= 0.2, "a reload begins nothing anew"
            exporter.probes["/gpus"] = dcgm(71)
            await until(lambda: has(gateway, "gpu_temperature_celsius"))
            gateway.gateway.configure(settings(one))
            assert not has(gateway, "gpu_sample_age_seconds") and not has(gateway, "gpu_temperature_celsius")


async def test_traffic_does_not_share_the_connections_on_which_gpus_are_read() -> None:
    """Even from the engine's own page."""
    async with Backend(lambda _: json_script(WELL), record_probes=True) as one:
        one.probes["/gpus"] = dcgm(71)
        async with running_with(settings(one, quick(one))) as gateway:
            await until(lambda: has(gateway, "gpu_temperature_celsius"))
            for _ in range(3):
                assert (await gateway.post({"model": "m"})).status == 200
            await one.until(lambda: sum(e.request.path == "/gpus" for e in one.exchanges) >= 3)
            of_gpus = {e.connection for e in one.exchanges if e.request.path == "/gpus"}
            others = {e.connection for e in one.exchanges if e.request.path != "/gpus"}
            assert len(of_gpus) == 1 and not of_gpus & others


async def test_a_single_request_counts_in_rates_without_others_and_without_a_look_at_metrics() -> None:
    async with engine() as one, running_with(settings(one)) as gateway:
        assert (await gateway.post({"model": "m"})).status == 200
        await until(lambda: gateway.gateway.router.endings.requests == 1)


async def test_a_backends_gpus_and_price_make_its_requests_gpu_time_and_its_tokens_cost() -> None:
    async with engine() as one, running_with(settings(one, gpus=1000, price_per_hour=1e6)) as gateway:
        assert (await gateway.post({"model": "m"})).status == 200
        await until(lambda: has(gateway, "cost_per_1000_tokens"))
        cost = gateway.metric("headrace_cost_per_1000_tokens", pool="p")
        assert cost > 0.0
    async with engine() as one, running_with(settings(one)) as gateway:
        assert (await gateway.post({"model": "m"})).status == 200
        await until(lambda: has(gateway, "gpu_seconds_per_request"))
        assert not has(gateway, "cost_per_1000_tokens"), "without a price"
