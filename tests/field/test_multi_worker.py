"""Field cases of several workers. A gateway is one process; what of the cases can be asked of one is here."""

from __future__ import annotations

from gateway.settings import ProbeSettings
from tests.backend import Backend
from tests.running import running
from tests.system.test_metrics import page

SELDOM = ProbeSettings(interval_seconds=3600, load_seconds=3600)


async def test_b179_every_scrape_sees_one_sum_that_never_falls() -> None:
    async with Backend() as one, Backend() as two, running(one, two) as gateway:
        seen = []
        for _ in range(20):
            for _ in range(10):
                assert (await gateway.post({"model": "m"})).status == 200
            samples = (await page(gateway))["headrace_requests"].samples
            seen.append(sum(sample.value for sample in samples if sample.name.endswith("_total")))
        assert seen == [10.0 * (scrape + 1) for scrape in range(20)]


async def test_b180_each_gateway_probes_once_an_interval_whatever_its_clients_do() -> None:
    async with Backend(record_probes=True) as backend:
        async with running(backend, probes=SELDOM) as one, running(backend, probes=SELDOM) as two:
            for gateway in (one, two):
                for _ in range(20):
                    assert (await gateway.get("/v1/models")).status == 200
                    assert (await gateway.get("/health")).status == 200
                    assert (await gateway.post({"model": "m"})).status == 200
                gateway.gateway.configure(gateway.gateway.settings)
        asked = [exchange.request.path for exchange in backend.exchanges if exchange.request.method == "GET"]
        assert (asked.count("/health"), asked.count("/v1/models")) == (2, 2)
