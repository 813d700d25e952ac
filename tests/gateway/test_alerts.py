"""Alerts as receivers get them, whatever state these are in. Time is virtual: pauses and limits end at exactly their moment."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import httpx
import pytest

from gateway.alert_receiver import CLOSE_SECONDS
from gateway.alert_settings import AlertSettings
from policies.rule_events import Severity
from tests.gateway.alert_stage import URL, alertmanager, receiver, stage, wall
from tests.virtual_loop import in_virtual_time

HOLDS = ("gpu-hot", "a", True)
LETS_GO = ("gpu-hot", "a", False)


@in_virtual_time
async def test_a_receiver_of_plain_json_hears_at_once_that_a_rule_holds_and_then_that_it_let_go() -> None:
    async with stage(receiver(), labels={"site": "x"}) as on:
        on.change(True)
        await asyncio.sleep(3)
        on.change(False)
        await asyncio.sleep(1)
        first, second = on.receivers.calls
    assert first.at == 0 and second.at == 3
    assert first.url == URL
    assert first.headers["content-type"] == "application/json"
    assert first.body == {
        "version": 1,
        "events": [
            {
                "rule": "gpu-hot",
                "scope": "backend",
                "subject": "a",
                "severity": "critical",
                "state": "active",
                "metric": "gpu_temperature_celsius",
                "value": 91.5,
                "threshold": 85.0,
                "actions": ["hold"],
                "cause": "metric",
                "at": "2023-11-14T22:13:20Z",
                "since": "2023-11-14T22:13:20Z",
                "summary": "gpu-hot holds for backend a: gpu_temperature_celsius is 91.5 (threshold 85); hold",
                "description": "It is too hot",
                "runbook_url": "deploy/runbooks/gpu-hot.md",
                "labels": {"site": "x"},
            }
        ],
    }
    (event,) = second.body["events"]
    assert event["state"] == "inactive"
    assert (event["since"], event["at"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:23Z")
    assert event["summary"] == "gpu-hot has let go of backend a: gpu_temperature_celsius is 91.5"


@in_virtual_time
async def test_an_alertmanager_gets_a_list_of_alerts_at_its_path_that_end_when_the_rule_lets_go() -> None:
    async with stage(alertmanager(repeat_seconds=60), labels={"site": "x", "severity": "mine"}) as on:
        on.change(True)
        await asyncio.sleep(3)
        on.change(False)
        await asyncio.sleep(1)
        first, second = on.receivers.calls
    assert first.url == "http://am.test:9093/prefix/api/v2/alerts"
    labels = {
        "site": "x",
        "alertname": "gpu-hot",
        "rule": "gpu-hot",
        "severity": "critical",
        "scope": "backend",
        "subject": "a",
        "source": "headrace",
    }
    annotations = {
        "summary": "gpu-hot holds for backend a: gpu_temperature_celsius is 91.5 (threshold 85); hold",
        "description": "It is too hot",
        "actions": "hold",
        "runbook_url": "deploy/runbooks/gpu-hot.md",
    }
    assert first.body == [
        {"labels": labels, "annotations": annotations, "startsAt": wall(0), "endsAt": wall(240)}
    ]
    (alert,) = second.body
    assert (alert["labels"], alert["startsAt"], alert["endsAt"]) == (labels, wall(0), wall(3))


@pytest.mark.parametrize("is_active", [True, False])
@in_virtual_time
async def test_no_alert_ends_before_it_began_though_the_clock_was_set_back(is_active: bool) -> None:
    async with stage(alertmanager(repeat_seconds=60)) as on:
        on.change(True)
        await asyncio.sleep(1)
        on.seconds_set_back = 3600.0
        if is_active:
            await asyncio.sleep(60)
        else:
            on.change(False)
            await asyncio.sleep(1)
        (alert,) = on.receivers.calls[-1].body
    assert len(on.receivers.calls) == 2
    assert alert["startsAt"] == alert["endsAt"] == wall((60 + 240 if is_active else 1) - 3600)


@in_virtual_time
async def test_the_fleet_s_alert_has_no_subject() -> None:
    async with stage(alertmanager()) as on:
        on.change(True, subject="")
        await asyncio.sleep(1)
    assert "subject" not in on.receivers.calls[0].body[0]["labels"]


@in_virtual_time
async def test_an_alertmanager_is_told_again_of_what_holds_every_repeat_seconds_and_others_are_not() -> None:
    async with stage(receiver(repeat_seconds=10), alertmanager(repeat_seconds=10)) as on:
        on.change(True)
        await asyncio.sleep(25)
        on.change(False)
        await asyncio.sleep(60)
    plain = [call for call in on.receivers.calls if call.url == URL]
    repeated = [call for call in on.receivers.calls if call.url != URL]
    assert [call.at for call in plain] == [0, 25]
    assert [(call.at, call.states) for call in repeated] == [
        (0, [HOLDS]),
        (10, [HOLDS]),
        (20, [HOLDS]),
        (25, [LETS_GO]),
    ]
    assert [call.body[0]["endsAt"] for call in repeated] == [wall(40), wall(50), wall(60), wall(25)]
    assert on.outcome("sent", "receivers[1]") == 2
    assert on.outcome("repeated", "receivers[1]") == 2


@in_virtual_time
async def test_a_repetition_that_fails_counts_as_a_failed_call_and_waits_for_the_next_one() -> None:
    async with stage(alertmanager(repeat_seconds=10)) as on:
        on.change(True)
        await asyncio.sleep(1)
        on.receivers.answer = lambda: 500
        await asyncio.sleep(10)
        on.receivers.answer = lambda: 200
        await asyncio.sleep(10)
        assert [call.at for call in on.receivers.calls] == [0, 10, 20]
        assert (on.outcome("sent"), on.outcome("failed"), on.outcome("repeated")) == (1, 1, 1)
        assert (on.outcome("dropped"), on.alerts.waiting) == (0, 0)


@in_virtual_time
async def test_what_is_new_does_not_put_off_the_repetition() -> None:
    async with stage(alertmanager(repeat_seconds=10)) as on:
        on.change(True)
        for n in range(12):
            await asyncio.sleep(1)
            on.change(True, subject=f"b{n}")
        await asyncio.sleep(0.5)
    assert [call.at for call in on.receivers.calls if HOLDS in call.states] == [0, 10]


@in_virtual_time
async def test_a_failed_call_is_repeated_after_pauses_that_double_up_to_thirty_seconds() -> None:
    async with stage(receiver()) as on:
        on.receivers.answer = lambda: 500
        on.change(True)
        await asyncio.sleep(200)
        on.receivers.answer = lambda: 200
        await asyncio.sleep(30)
    assert set(on.receivers.told) == {HOLDS}
    times = [call.at for call in on.receivers.calls]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for n, pause in enumerate(pauses):
        most = min(0.25 * 2**n, 30.0)
        assert 0.75 * most <= pause <= most, n
    assert on.outcome("failed") == len(pauses)
    assert on.outcome("sent") == 1
    assert len(set(pauses)) == len(pauses), "without jitter all gateways would come at once"


@in_virtual_time
async def test_after_a_success_pauses_are_short_again() -> None:
    async with stage(receiver()) as on:
        on.receivers.answer = lambda: 503
        on.change(True)
        await asyncio.sleep(20)
        on.receivers.answer = lambda: 200
        await asyncio.sleep(30)
        on.receivers.answer = lambda: 503
        began, first = asyncio.get_running_loop().time(), len(on.receivers.calls)
        on.change(False)
        await asyncio.sleep(1)
    assert on.receivers.calls[first].at == began
    assert on.receivers.calls[first + 1].at - began <= 0.25


@pytest.mark.parametrize(
    "answer", [500, 429, 408, httpx.ConnectError("refused"), httpx.ReadError("reset"), None]
)
def test_no_state_of_a_receiver_loses_what_it_has_to_hear(answer: int | Exception | None) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stage(receiver()) as on:
            on.receivers.answer = lambda: answer
            on.change(True)
            await asyncio.sleep(20)
            assert on.alerts.waiting == 1 and on.outcome("failed") >= 3
            on.receivers.answer = lambda: 200
            await asyncio.sleep(31)
            assert on.alerts.waiting == 0
            assert (on.outcome("sent"), on.outcome("dropped")) == (1, 0)

    check()


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413])
def test_an_answer_that_will_always_be_the_same_gives_up_what_was_told_and_counts_it(status: int) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stage(receiver()) as on:
            on.receivers.answer = lambda: status
            on.change(True)
            await asyncio.sleep(100)
            assert len(on.receivers.calls) == 1
            assert (on.outcome("failed"), on.outcome("dropped"), on.alerts.waiting) == (1, 1, 0)
            on.receivers.answer = lambda: 200
            on.change(True, subject="b")
            await asyncio.sleep(1)
            assert on.receivers.calls[-1].states == [("gpu-hot", "b", True)]

    check()


@in_virtual_time
async def test_an_alertmanager_that_refused_hears_of_what_still_holds_at_the_next_repetition() -> None:
    async with stage(alertmanager(repeat_seconds=10)) as on:
        on.receivers.answer = lambda: 401
        on.change(True)
        await asyncio.sleep(15)
        on.receivers.answer = lambda: 200
        await asyncio.sleep(10)
        on.change(False)
        await asyncio.sleep(1)
    assert [(call.at, call.states) for call in on.receivers.calls] == [
        (0, [HOLDS]),
        (10, [HOLDS]),
        (20, [HOLDS]),
        (25, [LETS_GO]),
    ]
    assert on.outcome("dropped") == 1


@in_virtual_time
async def test_a_call_is_given_up_after_timeout_seconds_however_slowly_it_goes_on() -> None:
    async with stage(receiver(timeout_seconds=2)) as on:
        on.receivers.answer = lambda: None
        on.change(True)
        await asyncio.sleep(1.99)
        assert on.outcome("failed") == 0
        await asyncio.sleep(0.02)
        assert on.outcome("failed") == 1


@in_virtual_time
async def test_while_a_receiver_hangs_only_the_newest_state_waits_and_the_order_stays() -> None:
    async with stage(receiver(timeout_seconds=5)) as on:
        on.receivers.answer = lambda: None
        on.change(True)
        await asyncio.sleep(1)
        on.change(False)
        on.receivers.answer = lambda: 200
        await asyncio.sleep(10)
    assert on.receivers.told == [HOLDS, LETS_GO], "the first may have arrived"


@in_virtual_time
async def test_a_rule_that_flaps_while_the_receiver_is_slow_is_told_once() -> None:
    async with stage(receiver()) as on:
        on.receivers.seconds = 4.0
        for n in range(10):
            on.change(n % 2 == 0)
            await asyncio.sleep(0.1)
        on.change(True)
        await asyncio.sleep(20)
    assert on.receivers.told == [HOLDS]


@in_virtual_time
async def test_a_state_that_is_told_again_is_sent_once() -> None:
    async with stage(receiver()) as on:
        for _ in range(3):
            on.change(True)
            await asyncio.sleep(1)
        for _ in range(3):
            on.change(False)
            await asyncio.sleep(1)
    assert on.receivers.told == [HOLDS, LETS_GO]


@in_virtual_time
async def test_what_came_and_went_while_the_receiver_was_away_is_not_told() -> None:
    async with stage(receiver()) as on:
        on.receivers.answer = lambda: httpx.ConnectError("refused")
        on.change(True)
        await asyncio.sleep(1)
        on.change(False)
        on.receivers.answer = lambda: 200
        calls = len(on.receivers.calls)
        await asyncio.sleep(60)
    assert len(on.receivers.calls) == calls
    assert on.alerts.waiting == 0


@in_virtual_time
async def test_one_receiver_that_hangs_holds_up_neither_another_one_nor_whoever_tells() -> None:
    async with stage(receiver(), alertmanager()) as on:
        hanging = iter([None])
        on.receivers.answer = lambda: next(hanging, 200)
        on.change(True)
        on.change(True, subject="b")
        assert asyncio.get_running_loop().time() == 0
        await asyncio.sleep(0.5)
        assert {call.url for call in on.receivers.calls} == {URL, "http://am.test:9093/prefix/api/v2/alerts"}
        assert on.outcome("sent", "receivers[1]") == 2 and on.outcome("sent") == 0


@in_virtual_time
async def test_max_waiting_bounds_what_waits_and_what_is_given_up_is_counted() -> None:
    async with stage(receiver(), max_waiting=3) as on:
        on.receivers.answer = lambda: 500
        for n in range(10):
            on.change(True, subject=str(n), severity=Severity.WARNING)
        assert on.alerts.waiting == 3
        assert on.outcome("dropped") == 7
        on.receivers.answer = lambda: 200
        await asyncio.sleep(1)
        assert [subject for _, subject, _ in on.receivers.told][-3:] == ["7", "8", "9"]


@in_virtual_time
async def test_many_changes_go_in_calls_of_at_most_sixty_four() -> None:
    async with stage(receiver()) as on:
        for n in range(150):
            on.change(True, subject=str(n))
        await asyncio.sleep(1)
    assert [len(call.states) for call in on.receivers.calls] == [64, 64, 22]
    assert [subject for _, subject, _ in on.receivers.told] == [str(n) for n in range(150)]


@in_virtual_time
async def test_min_severity_keeps_from_a_receiver_what_is_less() -> None:
    async with stage(receiver(min_severity=Severity.CRITICAL), receiver(min_severity=Severity.INFO)) as on:
        on.change(True, severity=Severity.WARNING)
        on.change(True, subject="b", severity=Severity.CRITICAL)
        await asyncio.sleep(1)
        assert on.outcome("sent", "receivers[0]") == 1
        assert on.outcome("sent", "receivers[1]") == 2


@in_virtual_time
async def test_bearer_token_is_what_a_receiver_knows_the_gateway_by() -> None:
    async with stage(receiver(bearer_token="t0ken"), alertmanager()) as on:
        on.change(True)
        await asyncio.sleep(1)
    assert {call.url: call.headers.get("authorization") for call in on.receivers.calls} == {
        URL: "Bearer t0ken",
        "http://am.test:9093/prefix/api/v2/alerts": None,
    }


@pytest.mark.parametrize(
    ("base", "runbook", "url"),
    [
        ("", "deploy/runbooks/x.md", "deploy/runbooks/x.md"),
        ("https://git.test/blob/main/", "deploy/runbooks/x.md", "https://git.test/blob/main/deploy/runbooks/x.md"),
        ("https://git.test", "https://wiki.test/x", "https://wiki.test/x"),
        ("https://git.test", "", ""),
    ],
)  # fmt: skip
def test_runbook_base_url_stands_in_front_of_a_runbook_that_is_no_url(
    base: str, runbook: str, url: str
) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stage(receiver(), runbook_base_url=base) as on:
            on.change(True, runbook=runbook)
            await asyncio.sleep(1)
        assert on.receivers.calls[0].body["events"][0]["runbook_url"] == url

    check()


@in_virtual_time
async def test_the_standby_webhook_hears_of_rules_that_want_standby_backends_and_whether_any_does() -> None:
    async with stage(standby_webhook="http://standby.test/") as on:
        for is_active, subject, standby in (
            *(
                (True, "a", False),
                (True, "p", True),
                (True, "q", True),
                (False, "p", True),
                (False, "q", True),
            ),
        ):
            on.change(
                is_active,
                subject=subject,
                severity=Severity.INFO,
                name="kv" if standby else "hot",
                standby=standby,
            )
            await asyncio.sleep(1)
    assert {call.url for call in on.receivers.calls} == {"http://standby.test/"}
    assert [(call.states, call.body["standby"]) for call in on.receivers.calls] == [
        ([("kv", "p", True)], True),
        ([("kv", "q", True)], True),
        ([("kv", "p", False)], True),
        ([("kv", "q", False)], False),
    ]
    assert on.outcome("sent", "standby") == 4


@in_virtual_time
async def test_a_receiver_that_comes_with_a_new_configuration_hears_of_what_holds_already() -> None:
    async with stage() as on:
        on.change(True)
        on.change(True, subject="b")
        on.change(False, subject="b")
        await asyncio.sleep(5)
        on.alerts.configure(AlertSettings(receivers=(receiver(),)), "")
        await asyncio.sleep(1)
    assert on.receivers.told == [HOLDS]
    assert on.receivers.calls[0].body["events"][0]["since"] == wall(0)


@in_virtual_time
async def test_a_receiver_that_is_changed_goes_on_where_it_is() -> None:
    async with stage(receiver(min_severity=Severity.CRITICAL)) as on:
        on.change(True)
        on.change(True, subject="b", severity=Severity.WARNING)
        await asyncio.sleep(1)
        assert on.receivers.told == [HOLDS]
        on.alerts.configure(AlertSettings(receivers=(receiver(bearer_token="new"),)), "")
        await asyncio.sleep(1)
        assert on.receivers.told == [HOLDS, ("gpu-hot", "b", True)], "it is curious of warnings now"
        assert on.receivers.calls[-1].headers["authorization"] == "Bearer new"
        on.alerts.configure(
            AlertSettings(receivers=(receiver(min_severity=Severity.CRITICAL, bearer_token="new"),)), ""
        )
        on.change(False, subject="b", severity=Severity.WARNING)
        await asyncio.sleep(1)
        assert on.receivers.told[-1] == ("gpu-hot", "b", False), "it was told of its beginning"


@in_virtual_time
async def test_a_receiver_that_another_one_is_put_in_front_of_goes_on_and_hears_the_end_that_it_missed() -> (
    None
):
    async with stage(receiver(), receiver()) as on:
        on.change(True)
        await asyncio.sleep(1)
        assert on.receivers.told == [HOLDS, HOLDS]
        on.receivers.answer = lambda: 500
        on.change(False)
        await asyncio.sleep(1)
        on.alerts.configure(AlertSettings(receivers=(alertmanager(), receiver(), receiver())), "")
        await asyncio.sleep(10)
        on.receivers.answer = lambda: 200
        on.receivers.calls.clear()
        await asyncio.sleep(60)
        assert on.receivers.told == [("gpu-hot", "a", False)] * 2, "and not of its beginning again"
        assert on.outcome("sent", "receivers[2]") == 1 == on.outcome("sent", "receivers[0]")


@in_virtual_time
async def test_a_receiver_that_goes_gets_what_waits_and_nothing_more() -> None:
    async with stage(receiver()) as on:
        on.change(True)
        on.alerts.configure(AlertSettings(), "")
        on.change(False)
        await asyncio.sleep(5)
    assert on.receivers.told == [HOLDS]


@in_virtual_time
async def test_the_end_tries_what_waits_once_more_and_at_once() -> None:
    async with stage(receiver()) as on:
        on.receivers.answer = lambda: 500
        on.change(True)
        await asyncio.sleep(60)
        on.receivers.answer = lambda: 200
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() == began
    assert (on.outcome("sent"), on.outcome("dropped")) == (1, 0)


@pytest.mark.parametrize("answer", [None, 500])
def test_the_end_waits_for_no_receiver_and_counts_what_is_lost(answer: int | None) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stage(receiver()) as on:
            on.receivers.answer = lambda: answer
            on.change(True)
            await asyncio.sleep(60)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began <= CLOSE_SECONDS + 0.001
        assert (on.outcome("sent"), on.outcome("dropped")) == (0, 1)

    check()


@pytest.mark.parametrize("answer", [500, 401, httpx.ReadError(URL), httpx.InvalidURL(URL), RuntimeError(URL)])
def test_no_url_and_no_token_is_in_the_log_whatever_goes_wrong(
    answer: int | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stage(receiver(bearer_token="t0ken")) as on:
            on.receivers.answer = lambda: answer
            on.change(True)
            await asyncio.sleep(10)

    with caplog.at_level(logging.INFO, "headrace"):
        check()
    said = "\n".join(record.getMessage() + str(record.exc_info) for record in caplog.records)
    assert "alert receiver receivers[0]: " in said
    assert "s3cret" not in said and "t0ken" not in said and "receiver.test" not in said


@in_virtual_time
async def test_a_receiver_that_is_away_is_one_line_of_the_log_and_its_return_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        async with stage(receiver()) as on:
            on.receivers.answer = lambda: 500
            on.change(True)
            await asyncio.sleep(100)
            on.receivers.answer = lambda: 200
            await asyncio.sleep(40)
    assert [record.getMessage() for record in caplog.records] == [
        "alert receiver receivers[0]: answered 500; tried again",
        "alert receiver receivers[0] takes alerts again",
    ]
