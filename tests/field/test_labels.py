"""Field cases of labels: neither a scan nor the names that clients invent make the page of metrics grow."""

from __future__ import annotations

import random

from gateway.settings import BusinessTypeSettings, MatchSettings, ProbeSettings
from tests import client
from tests.backend import Backend
from tests.running import CHAT, JSON, Running, running
from tests.system.test_metrics import page, random_request

MOST_MORE = 20
"""Series of rates and spans that begin with the time that passes."""
SELDOM = ProbeSettings(interval_seconds=3600, load_seconds=3600)


async def series(gateway: Running) -> int:
    return sum(len(family.samples) for family in (await page(gateway)).values())


async def test_b122_a_scan_of_random_paths_methods_and_queries_adds_no_series() -> None:
    draw = random.Random(7)
    methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "PURGE"]

    def scan() -> bytes:
        word = f"{draw.getrandbits(64):x}"
        path = draw.choice(["/", "/v1/", "/v1/models/", "/admin/", "/.git/", "/v1/responses/"]) + word
        return client.request(draw.choice(methods), f"{path}?{word}={word}", [JSON], b"{}")

    async with Backend() as backend, running(backend, probes=SELDOM) as gateway:
        for _ in range(600):
            await gateway.send(scan())
        for _ in range(200):
            await gateway.send(random_request(draw))
        before = await series(gateway)
        for _ in range(1000):
            await gateway.send(scan())
        assert await series(gateway) < before + MOST_MORE


async def test_b123_names_that_clients_invent_add_no_series() -> None:
    types = (BusinessTypeSettings(name="cards", match=MatchSettings(keywords=("visa",))),)
    async with (
        Backend() as backend,
        running(backend, probes=SELDOM, business_types=types) as gateway,
        await gateway.connect() as connection,
    ):

        async def ask(number: int) -> None:
            name = b"n%d" % number
            names = (
                b"x-session-id",
                b"x-business-type",
                b"x-headrace-tenant",
                b"x-request-id",
                b"x-headrace-pool",
            )
            body = b'{"model":"m","user":"%b","session_id":"%b","prompt_cache_key":"%b"}' % (name, name, name)
            await connection.send(client.request("POST", CHAT, [JSON, *[(one, name) for one in names]], body))
            assert (await connection.read_answer()).status == 200

        await ask(0)
        before = await series(gateway)
        for number in range(1, 2000):
            await ask(number)
        assert await series(gateway) < before + MOST_MORE
        assert gateway.metric("headrace_requests_total", business="default") == 2000
