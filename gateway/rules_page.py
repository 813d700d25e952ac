"""`/admin/rules`: every degradation rule with its state for each subject, what all of them do now, and who has forced what.

GET gives all of it. POST `/admin/rules/{name}` forces a rule: `{"force": "on" | "off" | null, "subject": "", "seconds": 600, "by": "name"}`; null takes a force back. Without `subject` it is of all subjects.
`seconds` says when it ends by itself, 1 second to 7 days. Each force, and its end, is in the audit trail and in the log (`gateway.rule_log`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import Refused, refusal_answer
from policies.degradation import Phase, Rule
from policies.degradation_actions import wording
from policies.rule_events import RuleEvent
from policies.terms import Refusal
from routing.degradation import Instance
from routing.router import Router
from routing.rule_check import objections

PATH = "/admin/rules"
MAX_SECONDS = 7 * 86_400
_MAX_BODY = 65_536
_MAX_NAME = 128
Tell = Callable[[list[RuleEvent]], None]


def rule_routes(router: Callable[[], Router], tell: Tell) -> list[Route]:
    """`tell` is given what a force has changed."""

    async def show(request: Request) -> Response:
        return _json(rules_state(router(), asyncio.get_running_loop().time()))

    async def force(request: Request) -> Response:
        try:
            events = _forced(router(), request.path_params["name"], await _fields(request))
        except Refused as refused:
            status, headers, body = refusal_answer(refused)
            return Response(body, status, {name.decode(): value.decode() for name, value in headers})
        tell(events)
        return _json(rules_state(router(), asyncio.get_running_loop().time()))

    return [Route(PATH, show), Route(PATH + "/{name}", force, methods=["POST"])]


def rules_state(router: Router, now: float) -> dict[str, Any]:
    degradation = router.degradation
    started = time.time() - now
    return {
        "rules": [
            {
                **_rule(rule),
                "problems": objections(router, name, now),
                "subjects": [_subject(router, one, now, started) for one in degradation.instances(name)],
            }
            for name, rule in degradation.rules.items()
        ],
        "effects": orjson.loads(orjson.dumps(asdict(degradation.effects), default=sorted)),
        "audit": [
            {
                "at": started + entry.at,
                "rule": entry.rule,
                "subject": entry.subject,
                "what": entry.what,
                "by": entry.by,
                "until": None if entry.until is None else started + entry.until,
            }
            for entry in degradation.forces.trail
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    also = rule.only_while
    return {
        "name": rule.name,
        "metric": rule.metric,
        "scope": rule.scope,
        "aggregate": rule.aggregate,
        "operator": rule.operator,
        "threshold": rule.threshold,
        "for_seconds": rule.for_seconds,
        "samples": rule.samples,
        "clear_threshold": rule.clear_threshold,
        "clear_seconds": rule.clear_seconds,
        "min_hold_seconds": rule.min_hold_seconds,
        "only_while": None if also is None else f"{also.metric} {also.operator} {also.threshold:g}",
        "actions": [wording(action) for action in rule.actions],
        "severity": rule.severity,
        "description": rule.description,
        "runbook": rule.runbook,
    }


def _subject(router: Router, one: Instance, now: float, started: float) -> dict[str, Any]:
    force = router.degradation.force_of(one)
    return {
        "subject": one.subject,
        "active": one.is_active,
        "phase": one.state.phase,
        "seconds": _seconds(one, now),
        "value": one.value,
        "forced": None if force is None else ("on" if force.is_on else "off"),
        "until": None if force is None else started + force.until,
    }


def _seconds(one: Instance, now: float) -> float | None:
    """For how long it has acted, else for how long it has been about to."""
    if one.is_active:
        return round(now - one.since, 1)
    return None if one.state.phase is Phase.INACTIVE else round(now - one.state.since, 1)


async def _fields(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise _wrong("The body is larger than a force needs")
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _wrong(f"The body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _wrong("The body is not a JSON object")
    unknown = sorted(str(name)[:40] for name in fields.keys() - {"force", "subject", "seconds", "by"})
    if unknown:
        raise _wrong(f"Unknown member {unknown[0]!r}; allowed: force, subject, seconds, by")
    return fields


def _forced(router: Router, name: str, fields: dict[str, Any]) -> list[RuleEvent]:
    degradation, now = router.degradation, asyncio.get_running_loop().time()
    if name not in degradation.rules:
        raise _wrong(
            f"There is no rule {name[:_MAX_NAME]!r}; there are: {', '.join(degradation.rules)}", "name"
        )
    subject, by, force = fields.get("subject"), fields.get("by"), fields.get("force", "")
    if subject is not None and subject not in [one.subject for one in degradation.instances(name)]:
        raise _wrong(
            f"The rule has no such subject; it has: {[one.subject for one in degradation.instances(name)][:20]}",
            "subject",
        )
    if not isinstance(by, str) or not 1 <= len(by) <= _MAX_NAME or not by.isprintable():
        raise _wrong(f"`by` has to say who does it, in 1 to {_MAX_NAME} characters", "by")
    if force is None:
        if not degradation.forces.has(name, subject):
            raise _wrong(
                f"Nothing is forced for {'the rule' if subject is None else 'this subject alone'}", "force"
            )
        return degradation.unforce(name, subject, by, now)
    if force not in ("on", "off"):
        raise _wrong('`force` has to be "on", "off" or null', "force")
    seconds = fields.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= MAX_SECONDS:
        raise _wrong(f"`seconds` has to say for how long, 1 to {MAX_SECONDS}", "seconds")
    return degradation.force(name, subject, force == "on", now + seconds, by, now)


def _wrong(message: str, param: str | None = None) -> Refused:
    return Refused(Refusal.BAD_REQUEST, message, param)


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
