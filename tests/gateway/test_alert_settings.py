"""`alerts` of the configuration: what can be said there, and what is refused without showing a secret."""

from __future__ import annotations

import pytest

from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from gateway.configuration import ConfigurationError, parse
from policies.rule_events import Severity

POOLS = "pools: [{name: a, backends: [{url: 'http://a'}]}]\n"


def test_everything_that_can_be_said_of_alerts_is_read() -> None:
    text = """
alerts:
  max_waiting: 7
  runbook_base_url: https://git.test/blob/main
  labels: {site: x}
  receivers:
  - url: http://am:9093
    form: alertmanager
    bearer_token: t
    min_severity: critical
    timeout_seconds: 3
    repeat_seconds: 20
  - url: https://hook.test/a?key=b
"""
    assert parse(POOLS + text, "f", {}).alerts == AlertSettings(
        receivers=(
            AlertReceiverSettings(
                url="http://am:9093",
                form=AlertForm.ALERTMANAGER,
                bearer_token="t",
                min_severity=Severity.CRITICAL,
                timeout_seconds=3,
                repeat_seconds=20,
            ),
            AlertReceiverSettings(url="https://hook.test/a?key=b"),
        ),
        max_waiting=7,
        runbook_base_url="https://git.test/blob/main",
        labels={"site": "x"},
    )


@pytest.mark.parametrize(
    ("alerts", "key", "says"),
    [
        ("receivers: [{url: 'ftp://s3cret'}]", "alerts.receivers[0].url", "does not start with"),
        ("receivers: [{url: 'http://user:s3cret@a'}]", "alerts.receivers[0].url", "holds a user name"),
        ("receivers: [{url: 'unix:///s3cret'}]", "alerts.receivers[0].url", "is no web address"),
        ("receivers: [{url: ''}]", "alerts.receivers[0].url", "is empty"),
        ("receivers: [{form: json}]", "alerts.receivers[0].url", "is missing"),
        (
            "receivers: [{url: 'http://a', bearer_token: 's3cret \u00e4'}]",
            "alerts.receivers[0].bearer_token",
            "cannot be sent in a header",
        ),
        ("runbook_base_url: nowhere", "alerts.runbook_base_url", "does not start with"),
        ("labels: {a-b: x}", "alerts.labels.a-b", "is not the name of a label"),
    ],
)
def test_what_cannot_work_is_refused_by_its_key_and_without_its_value(
    alerts: str, key: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(f"{POOLS}alerts: {{{alerts}}}\n", "f", {})
    (fault,) = caught.value.faults
    assert fault.key == key
    assert says in fault.message
    assert "s3cret" not in str(caught.value)
