"""The demo where standard output is no terminal: one line every `EVERY_SECONDS`, and one per event."""

from __future__ import annotations

from typing import TextIO

from gateway.demo.business import TYPES
from gateway.demo.figures import Ending
from gateway.demo.view import View, milliseconds, share

EVERY_SECONDS = 2.0


class Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._due = EVERY_SECONDS

    def open(self, introduction: list[str]) -> None:
        self._write(introduction)

    def event(self, seconds: float, text: str) -> None:
        self._write([f"{seconds:5.0f} s  {text}"])

    def show(self, view: View, now: float) -> None:
        if view.seconds < self._due:
            return
        self._due += EVERY_SECONDS * (1 + (view.seconds - self._due) // EVERY_SECONDS)
        parts = []
        for kind, figures in zip(TYPES, view.load.figures, strict=True):
            span, rate = figures.recent(now)
            parts.append(
                f"{kind.name} {rate:.0f}/s {share(span.inside_share)} in target "
                f"P50 {milliseconds(span.percentile_ms(0.5))} P99 {milliseconds(span.percentile_ms(0.99))}"
            )
        whole = [figures.whole for figures in view.load.figures]
        gateway = view.gateway
        parts.append(f"refused {sum(span.endings[Ending.REFUSED] for span in whole)}")
        parts.append(f"failed {sum(span.endings[Ending.FAILED] for span in whole)}")
        parts.append(f"engines up {sum(gateway.up.values())}/{len(view.fleet.members)}")
        parts.append(f"in flight {gateway.in_flight.total()} waiting {gateway.waiting}")
        self._write([f"{view.seconds:5.0f} s  " + " | ".join(parts)])

    def close(self, summary: list[str]) -> None:
        self._write(summary)

    def _write(self, lines: list[str]) -> None:
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
