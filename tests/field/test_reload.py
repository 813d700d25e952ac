"""New configurations while requests run: nothing of the old one goes on, nothing is half of each, and a bad one changes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from pathlib import Path
from typing import Any

from gateway.settings import BackendSettings, PoolSettings, ProbeSettings, ServerSettings, Settings
from tests import client
from tests.backend import Backend, Gate, Script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.running import one_pool, post_request, running_with

OFTEN = ProbeSettings(interval_seconds=0.05, load_seconds=0.05)


async def test_b125_nothing_of_an_old_configuration_runs_on_beside_the_new_one() -> None:
    async with Backend(record_probes=True) as old, Backend(record_probes=True) as new:
        settings = [one_pool([backend], probes=OFTEN) for backend in (old, new)]
        async with running_with(settings[0]) as gateway:
            assert (await gateway.post({})).status == 200
            tasks, threads = len(asyncio.all_tasks()), threading.active_count()
            for number in range(1, 22):
                gateway.gateway.configure(settings[number % 2])
                assert (await gateway.post({})).status == 200
            asked = len(old.exchanges)
            await new.until(lambda: len(new.exchanges) > 60)
            await until(lambda: len(asyncio.all_tasks()) <= tasks + 1)
            assert len(old.exchanges) == asked and not old.connections
            assert threading.active_count() == threads
            assert len(list(gateway.gateway.router.fleet)) == 1


async def test_b126_no_bad_file_takes_a_running_gateway_down(tmp_path: Path) -> None:
    async with Backend() as backend:
        path = tmp_path / "headrace.yaml"

        def good(**more: Any) -> str:
            return json.dumps({"pools": [{"name": "p", "backends": [{"url": backend.url}]}], **more})

        bad = {
            "broken yaml": "pools: [",
            "empty": "",
            "no mapping": "- 1",
            "unknown key": good(nonsense=1),
            "wrong type": good(server={"max_body_mb": "many"}),
            "negative weight": good(tenants=[{"name": "a", "weight": -1}]),
            "no such pool": good(business_types=[{"name": "b", "pools": ["none"]}]),
            "half": good()[: len(good()) // 2],
            "not utf-8": "\udcff",
            "no scheme": good().replace("http://", "nowhere:"),
        }
        path.write_text(good())
        async with GatewayProcess("--config", str(path)) as gateway:
            answers: list[int] = []

            async def load() -> None:
                while True:
                    answers.append((await client.send(gateway.port, post_request({}))).status)

            steady = asyncio.create_task(load())
            for number, content in enumerate(bad.values(), 1):
                path.write_text(content, errors="surrogateescape")
                gateway.signal(signal.SIGHUP)
                await until(lambda number=number: gateway.stderr.count(b"was not reloaded") == number)  # type: ignore[misc]
            page = (await client.send(gateway.port, client.request("GET", "/metrics"))).body
            assert b'headrace_config_reloads_total{result="failed"} %d.0' % len(bad) in page
            assert b"Traceback" not in gateway.stderr
            steady.cancel()
            await asyncio.wait([steady])
            assert answers and set(answers) == {200}


async def test_b129_each_request_is_served_by_one_configuration_whole() -> None:
    gates: list[Gate] = []

    def slow(_: Any) -> Script:
        gate = Gate()
        gates.append(gate)
        if len(gates) % 5:
            gate.set()
        return Script(before_head=gate, chunks=[b"{}"])

    async with Backend(slow, models=["model-a"]) as a, Backend(slow, models=["model-b"]) as b:

        def configured(backend: Backend, key: str, model: str) -> Settings:
            pool = PoolSettings(name="p", backends=(BackendSettings(url=backend.url, api_key=key),))
            return Settings(pools=(pool,), aliases={"fast": model}, server=ServerSettings(port=0))

        both = [configured(a, "key-a", "model-a"), configured(b, "key-b", "model-b")]
        async with running_with(both[0]) as gateway:
            served = [0]

            async def ask() -> None:
                for _ in range(50):
                    answer = await gateway.post({"model": "fast"})
                    # A name that was the old configuration's may be unknown to the new one's engine, and is refused.
                    assert answer.status in (200, 404, 503), answer.body
                    served[0] += answer.status == 200

            asking = [asyncio.create_task(ask()) for _ in range(8)]
            turns = 0
            while not all(task.done() for task in asking):
                turns += 1
                gateway.gateway.configure(both[turns % 2])
                for _ in range(20):
                    await asyncio.sleep(0)
                for gate in gates:
                    gate.set()
            await asyncio.gather(*asking)
            assert served[0] >= 380 and turns > 10, "of 400, for which an engine was well all the time"
        for backend, key, model in ((a, b"key-a", "model-a"), (b, b"key-b", "model-b")):
            assert backend.exchanges
            for exchange in backend.exchanges:
                assert exchange.request.values(b"authorization") == [b"Bearer " + key]
                assert exchange.request.json() == {"model": model}
