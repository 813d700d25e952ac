"""What is shown, as plain records: how to talk to the demo, where it stands now, how it ended.

`screen` and `lines` put the same things on a terminal and into a pipe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gateway.demo.business import MODEL, STREAM_SHARE, TYPES
from gateway.demo.figures import Ending, Span
from gateway.demo.fleet import Fleet
from gateway.demo.load import Load
from gateway.demo.scrape import GatewayState

MAX_EVENTS = 3


def introduction(port: int, share_of_peak: float, engines: int) -> list[str]:
    """Lines of at most 80 characters, the command among them fit for copying."""
    address = f"127.0.0.1:{port}"
    rate = sum(kind.peak_rate for kind in TYPES) * share_of_peak
    return [
        f"Headrace in front of {engines} emulated engines: modelled times, made-up words.",
        f"  curl {address}/v1/chat/completions -H content-type:application/json \\",
        f'    -d \'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]}}\'',
        f'  OpenAI(base_url="http://{address}/v1", api_key="none"), model "{MODEL}"',
        f"{rate:.0f} requests/s, {STREAM_SHARE:.0%} of them streams, each to the least loaded engine, and to",
        "another if that one fails before its answer began. Engines fail on purpose.",
    ]


@dataclass(slots=True)
class View:
    """The demo as it stands. `seconds` counts from the load's beginning; `events` are the last few, each with its second."""

    fleet: Fleet
    load: Load
    gateway: GatewayState = field(default_factory=GatewayState)
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    seconds: float = 0.0

    def note(self, text: str) -> tuple[float, str]:
        self.events.append((self.seconds, text))
        return self.events[-1]


def share(value: float | None) -> str:
    """Rounded down: 100 % means all of them."""
    return "-" if value is None else f"{int(value * 1000) / 10:g} %"


def milliseconds(value: int | None) -> str:
    return "-" if value is None else f"{value} ms"


def summary(view: View) -> list[str]:
    whole = [figures.whole for figures in view.load.figures]
    answered, refused, failed = (sum(span.endings[ending] for span in whole) for ending in Ending)
    lines = [
        f"{answered} answered in {view.seconds:.0f} s, {refused} refused, {failed} failed, "
        f"{view.gateway.moved_here.total()} moved to another engine"
    ]
    lines += [f"  {kind.name}: {_of(span)}" for kind, span in zip(TYPES, whole, strict=True)]
    if view.load.skipped_seconds >= 0.1:
        lines.append(
            f"this machine was too busy to send anything for {view.load.skipped_seconds:.1f} s; a smaller --load helps"
        )
    return lines


def _of(span: Span) -> str:
    return (
        f"{span.endings[Ending.ANSWERED]} answered, P50 {milliseconds(span.percentile_ms(0.5))}, "
        f"P99 {milliseconds(span.percentile_ms(0.99))}, {share(span.inside_share)} in target"
    )
