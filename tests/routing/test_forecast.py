"""What is predicted of waits, and how much is remembered for it."""

from __future__ import annotations

from policies.terms import UNTAGGED
from routing.forecast import MAX_FLOWS, Forecast


def test_the_flows_that_were_asked_for_last_are_remembered() -> None:
    forecast = Forecast()
    tags = [UNTAGGED._replace(tenant=f"t{number}") for number in range(MAX_FLOWS + 10)]
    for tag in tags:
        assert forecast.wait_of_flow(tag, 0, 0.0) is None
    assert len(forecast._flows) == MAX_FLOWS
    assert {key[1] for key in forecast._flows} == {tag.tenant for tag in tags[10:]}


def test_a_flow_is_measured_from_when_somebody_asked_for_it() -> None:
    forecast = Forecast()
    forecast.flow_began(UNTAGGED, 0.0)
    forecast.flow_served(UNTAGGED, 0.0)
    assert forecast.wait_of_flow(UNTAGGED, 0, 0.0) is None
    other = UNTAGGED._replace(tenant="other")
    forecast.flow_began(other, 0.0)
    forecast.flow_served(other, 0.0)
    assert [key[1] for key in forecast._flows] == [UNTAGGED.tenant]
    forecast.flow_began(UNTAGGED, 1.0)
    for number in range(1, 101):
        forecast.flow_served(UNTAGGED, 1.0 + 0.1 * number)
    wait = forecast.wait_of_flow(UNTAGGED, 9, 11.0)
    assert wait is not None and 0.9 < wait < 1.1
