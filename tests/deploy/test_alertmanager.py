"""The gateway's alerts in a real Alertmanager: it takes them, shows them as active, and lets them end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from tests import client
from tests.backend import Backend
from tests.deploy.questions import DEPLOY
from tests.deploy.tools import serving
from tests.running import Running, running

RULE = "batch-idle"
BOUND_SECONDS = 20


async def alerts(port: int) -> list[dict[str, Any]]:
    answer = await client.send(port, client.request("GET", "/api/v2/alerts?active=true"))
    assert answer.status == 200
    found: list[dict[str, Any]] = json.loads(answer.body)
    return found


async def force(gateway: Running, word: str | None) -> None:
    body = {"force": word, "seconds": 60, "by": "test"}
    assert (await gateway.post(body, f"/admin/rules/{RULE}")).status == 200


async def until_sent(gateway: Running, count: int) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while gateway.metric("headrace_alerts_total", outcome="sent") < count:
            assert (await gateway.get("/healthz")).status == 200


async def test_alertmanager_shows_what_holds_and_no_more_what_has_let_go(tmp_path: Path) -> None:
    example = DEPLOY / "alertmanager" / "alertmanager.yml"
    async with serving(
        "prometheus-alertmanager",
        f"--config.file={example}",
        "--storage.path=data",
        "--cluster.listen-address=",
        ready="/-/ready",
        folder=tmp_path,
    ) as port:
        receiver = AlertReceiverSettings(url=f"http://127.0.0.1:{port}", form=AlertForm.ALERTMANAGER)
        settings = AlertSettings(
            receivers=(receiver,), labels={"site": "x"}, runbook_base_url="https://git.test"
        )
        async with Backend() as engine, running(engine, alerts=settings) as gateway:
            await force(gateway, "on")
            await until_sent(gateway, 1)
            (alert,) = await alerts(port)
            await force(gateway, None)
            await until_sent(gateway, 2)
            async with asyncio.timeout(BOUND_SECONDS):
                while await alerts(port):
                    pass
            assert gateway.metric("headrace_alerts_total", outcome="failed") == 0
    assert alert["labels"] == {
        "alertname": RULE,
        "rule": RULE,
        "severity": "warning",
        "scope": "pool",
        "subject": "default",
        "source": "headrace",
        "site": "x",
    }
    assert alert["annotations"]["runbook_url"] == f"https://git.test/deploy/runbooks/{RULE}.md"
    assert alert["status"]["state"] == "active" and alert["startsAt"] < alert["endsAt"]
