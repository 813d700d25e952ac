"""Every alert and every rule has a runbook, every runbook belongs to one, and what a runbook tells to type is taken by a gateway."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from gateway.degradation_settings import DegradationSettings
from policies.default_rules import DEFAULT_RULES
from routing.ladder import ladder_rules
from tests.backend import Backend
from tests.deploy.questions import DEPLOY, alerts, dashboards, families, series
from tests.running import running

RUNBOOKS = {path.stem: path.read_text(encoding="utf-8") for path in (DEPLOY / "runbooks").glob("*.md")}
SECTIONS = ["What it means", "What the gateway has done already", "What to look at", "Force and undo"]
RULES = {rule.name: rule for rule in (*DEFAULT_RULES, *ladder_rules())}
CURL = re.compile(r"^curl .*$", re.MULTILINE)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    linked = [rule["annotations"]["runbook_url"] for rule in alerts().values()]
    assert sorted(linked) == sorted(f"deploy/runbooks/{name}.md" for name in RUNBOOKS)
    for name, rule in alerts().items():
        runbook = rule["annotations"]["runbook_url"].removeprefix("deploy/runbooks/").removesuffix(".md")
        assert re.search(rf"^Alert: .*\b{name}\b", RUNBOOKS[runbook], re.MULTILINE), name


def test_every_rule_of_the_gateway_has_a_runbook_that_names_it() -> None:
    for name, rule in RULES.items():
        runbook = rule.runbook.removeprefix("deploy/runbooks/").removesuffix(".md")
        text = RUNBOOKS[runbook]
        assert f"`{name}`" in text or (name.startswith("ladder-") and "`ladder-1` to `ladder-5`" in text)


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_says_what_it_means_what_was_done_what_to_look_at_and_how_to_force_and_undo(
    name: str,
) -> None:
    text = RUNBOOKS[name]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert all(len(part.split()) >= 10 for part in text.split("\n## ")[1:])
    assert "undo" in text.split("## Force and undo")[1].lower()
    assert set(re.findall(r"\]\(([a-z-]+)\.md\)", text)) <= RUNBOOKS.keys()


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_names_metrics_dashboards_and_panels_that_exist(name: str) -> None:
    text = RUNBOOKS[name]
    known = families().keys() | series().keys()
    assert set(re.findall(r"`(headrace_[a-z_]+)", text)) <= known
    titles = {panel["title"] for one in dashboards().values() for panel in one["panels"]}
    shown = {title for title in re.findall(r"(?<!\*)\*([^*\n]+)\*", text) if title not in dashboards()}
    assert shown - titles == set(), "no such panel"


def commands(text: str) -> list[tuple[str, dict[str, object] | None]]:
    """Path and body of each `curl $GW...` of a runbook."""
    found = []
    for line in CURL.findall(text):
        words = shlex.split(line.partition(" | ")[0])
        path = next(word for word in words if word.startswith("$GW")).removeprefix("$GW")
        found.append((path, json.loads(words[words.index("-d") + 1]) if "-d" in words else None))
    return found


async def test_everything_that_runbooks_tell_to_type_is_taken_and_undone() -> None:
    subjects = {"backend": "gpu-1", "pool": "high-batch"}
    count = 0
    async with (
        Backend() as engine,
        running(engine, degradation=DegradationSettings(ladder=True)) as gateway,
    ):
        real = {"gpu-1": engine.url.removeprefix("http://"), "high-batch": "default"}
        for name, text in RUNBOOKS.items():
            for path, body in commands(text):
                rule = path.removeprefix("/admin/rules/")
                if body is None:
                    assert (await gateway.get(path)).status == 200, name
                    continue
                if rule == "NAME":
                    continue
                subject = body.get("subject")
                assert subject == subjects.get(RULES[rule].scope), (name, path)
                if subject is not None:
                    body["subject"] = real[str(subject)]
                answer = await gateway.post(body, path)
                assert answer.status == 200, (name, answer.body)
                count += 1
            state = json.loads((await gateway.get("/admin/rules")).body)
            forced = [
                one["name"] for one in state["rules"] if any(each["forced"] for each in one["subjects"])
            ]
            assert forced == [], f"{name} leaves something forced"
    assert count > 40
