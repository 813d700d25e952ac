"""Alerts that leave a running gateway, over sockets: at a rule's change of state, and without holding anything up."""

from __future__ import annotations

import json
import logging
import ssl
from typing import Any

import pytest
import trustme

from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from gateway.degradation_settings import DegradationSettings
from tests.backend import Backend, Gate, Script
from tests.emulator.running import until
from tests.running import Running, running

RULE = "batch-idle"


def plain(receiver: Backend, path: str = "/hook", **fields: Any) -> AlertSettings:
    return AlertSettings(receivers=(AlertReceiverSettings(url=receiver.url + path, **fields),))


def alertmanager(receiver: Backend) -> AlertSettings:
    return AlertSettings(
        receivers=(AlertReceiverSettings(url=receiver.url, form=AlertForm.ALERTMANAGER, bearer_token="t"),)
    )


async def force(gateway: Running, word: str | None, rule: str = RULE) -> None:
    body = {"force": word, "seconds": 600, "by": "test"}
    assert (await gateway.post(body, f"/admin/rules/{rule}")).status == 200


async def body_of(receiver: Backend, index: int) -> Any:
    exchange = await receiver.exchange(index)
    await exchange.body_complete.wait()
    return json.loads(exchange.request.body)


async def test_a_rule_that_takes_hold_and_lets_go_is_told_to_a_webhook_in_that_order() -> None:
    async with Backend() as engine, Backend() as receiver, running(engine, alerts=plain(receiver)) as gateway:
        await force(gateway, "on")
        (holds,) = (await body_of(receiver, 0))["events"]
        await until(lambda: gateway.metric("headrace_alerts_total", outcome="sent") == 1)
        await force(gateway, None)
        (lets_go,) = (await body_of(receiver, 1))["events"]
        await until(lambda: gateway.metric("headrace_alerts_total", outcome="sent") == 2)
        assert gateway.metric("headrace_alerts_waiting") == 0
    assert receiver.exchanges[0].request.target == "/hook"
    assert (holds["rule"], holds["state"], holds["cause"]) == (RULE, "active", "operator")
    assert (lets_go["rule"], lets_go["state"]) == (RULE, "inactive")
    assert holds["runbook_url"] == f"deploy/runbooks/{RULE}.md"
    assert lets_go["since"] == holds["since"] == holds["at"] < lets_go["at"]


async def test_an_alertmanager_is_told_at_the_path_of_its_api() -> None:
    async with (
        Backend() as engine,
        Backend() as receiver,
        running(engine, alerts=alertmanager(receiver)) as gateway,
    ):
        await force(gateway, "on")
        (alert,) = await body_of(receiver, 0)
        await until(lambda: gateway.metric("headrace_alerts_total", outcome="sent") == 1)
    request = receiver.exchanges[0].request
    assert (request.method, request.target) == ("POST", "/api/v2/alerts")
    assert request.value(b"authorization") == b"Bearer t"
    assert alert["labels"]["alertname"] == RULE and alert["startsAt"] < alert["endsAt"]


async def test_the_standby_webhook_is_told_by_the_rule_that_wants_standby_backends() -> None:
    async with Backend() as engine, Backend() as receiver:
        webhook = DegradationSettings(standby_webhook=receiver.url + "/start")
        async with running(engine, degradation=webhook) as gateway:
            await force(gateway, "on", RULE)
            await force(gateway, "on", "kv-pressure")
            body = await body_of(receiver, 0)
            await until(lambda: gateway.metric("headrace_alerts_total", receiver="standby") == 1)
    assert [event["rule"] for event in body["events"]] == ["kv-pressure"]
    assert body["standby"] is True


async def test_while_a_receiver_hangs_requests_and_operators_are_answered_and_the_end_does_not_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging = Gate()
    with caplog.at_level(logging.INFO, "headrace"):
        async with Backend() as engine, Backend(lambda _: Script(before_head=hanging)) as receiver:
            settings = plain(receiver, "/hook?key=s3cret", timeout_seconds=60, bearer_token="t0ken")
            async with running(engine, alerts=settings) as gateway:
                await force(gateway, "on")
                await receiver.exchange(0)
                for _ in range(20):
                    assert (await gateway.post({"model": "m"})).status == 200
                    await force(gateway, "off")
                    await force(gateway, "on")
                assert gateway.metric("headrace_alerts_waiting") == 1
                assert len(receiver.exchanges) == 1
    said = caplog.text
    assert RULE in said
    assert "s3cret" not in said and "t0ken" not in said


async def test_a_receiver_whose_certificate_nobody_vouches_for_is_told_nothing() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with Backend() as engine, Backend(tls=context) as receiver:
        async with running(engine, alerts=plain(receiver)) as gateway:
            await force(gateway, "on")
            await until(lambda: gateway.metric("headrace_alerts_total", outcome="failed") >= 2)
            assert gateway.metric("headrace_alerts_waiting") == 1
        assert receiver.exchanges == []
        assert gateway.gateway.alerts.outcomes["receivers[0]", "dropped"] == 1
