"""Every expression of dashboards and rules, asked of a real Prometheus that scrapes the demo and evaluates the rules of deploy/."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests import client
from tests.deploy.questions import PROMETHEUS, Question, alerts, of_dashboards, of_rules, recordings
from tests.deploy.tools import serving, tool
from tests.gateway.test_demo import Demo
from tests.gateway.test_demo import running as demo_running

BOUND_SECONDS = 90
POLL_SECONDS = 0.5

UNSEEN = re.compile(
    "headrace_(?:backend_(?:share|held|(?:max|reserved|prefill|max_prefill)_tokens)|circuit_t|canaries|gpu_[tmu]|gpu_sample|memory_swing"
    "|cost_per|intent|classifier|dialogue|session_store|session_writes|gather|batch|shed_share|alerts_total|config_reloads|aborts|cut_answers|retries)"
)
"""What the demo has nothing of: GPUs, prices, a classifier, Redis, gathered batches, limits in tokens, receivers of alerts; and faults and overload, which need not be there just then."""
QUIET = {"overview: Degradation rules", "overview: Circuits that are not closed"}
"""Shows only what is not as it should be."""


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str) -> Any:
        answer = await client.send(self._port, client.request("GET", path))
        said = json.loads(answer.body)
        assert answer.status == 200 and said["status"] == "success", f"{path}: {said}"
        return said["data"]

    async def ask(self, expression: str) -> list[Any]:
        found: list[Any] = (await self.get(f"/api/v1/query?query={quote(expression)}"))["result"]
        return found


def asked(question: Question) -> str:
    """As Grafana would ask it."""
    return question.expression.replace("$__rate_interval", "10s").replace('"$job"', '"headrace"')


def may_be_empty(question: Question) -> bool:
    where = question.where
    return where in alerts() or where in QUIET or UNSEEN.search(question.expression) is not None


def configuration(folder: Path, port: int) -> None:
    """That of deploy/ for a gateway at `port`, every second, without an Alertmanager."""
    for file in ("recording.rules.yml", "alerts.rules.yml"):
        shutil.copy(PROMETHEUS / file, folder)
    loaded = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    loaded["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    del loaded["alerting"]
    (scrape,) = loaded["scrape_configs"]
    scrape["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(loaded), encoding="utf-8")


async def until_answered(prometheus: Prometheus, questions: Iterable[Question], demo: Demo) -> None:
    """Each of them with something, at some time."""
    left = list(questions)
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            while left := [question for question in left if not await prometheus.ask(asked(question))]:
                ended = asyncio.ensure_future(demo.process.wait())
                await asyncio.wait([ended], timeout=POLL_SECONDS)
                assert not ended.done(), "the demo has ended"
                ended.cancel()
    except TimeoutError:
        raise AssertionError(f"no answer to {[(one.where, asked(one)) for one in left]}") from None


@pytest.mark.timeout(150)
async def test_every_question_of_dashboards_and_rules_has_an_answer_where_the_demo_has_traffic(
    tmp_path: Path,
) -> None:
    tool("prometheus")
    questions = [*of_dashboards(), *of_rules()]
    async with demo_running("--port", "0") as demo:
        configuration(tmp_path, await demo.port())
        # Its output goes on being read: a full pipe would stop it.
        reading = asyncio.create_task(demo.until("no such line"))
        async with serving(
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--query.lookback-delta=1m",
            ready="/-/ready",
            folder=tmp_path,
        ) as port:
            prometheus = Prometheus(port)
            await until_answered(prometheus, [one for one in questions if not may_be_empty(one)], demo)
            for question in questions:
                await prometheus.ask(asked(question))
            groups = (await prometheus.get("/api/v1/rules"))["groups"]
            rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
            assert rules.keys() == recordings().keys() | alerts().keys()
            assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
            assert [
                target["health"] for target in (await prometheus.get("/api/v1/targets"))["activeTargets"]
            ] == ["up"]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
