"""The demo where standard output is no terminal: one line every `EVERY_SECONDS`, and one per event."""

from __future__ import annotations

from typing import TextIO

from gateway.demo.figures import Ending, Span
from gateway.demo.view import ROWS, View, milliseconds, refusals, share

EVERY_SECONDS = 2.0


class Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._due = EVERY_SECONDS

    def open(self, introduction: list[str]) -> None:
        self._write(introduction)

    def event(self, seconds: float, text: str) -> None:
        self._write([f"{seconds:5.0f} s  {text}"])

    def show(self, view: View) -> None:
        if view.seconds < self._due:
            return
        self._due += EVERY_SECONDS * (1 + (view.seconds - self._due) // EVERY_SECONDS)
        parts = []
        whole = Span()
        for name, row in zip(ROWS, view.load.rows, strict=True):
            span = row.recent(view.seconds)
            parts.append(
                f"{name.name} {share(span.inside_share)} inside, "
                f"P50/P99 {milliseconds(span.percentile_ms(0.5))}/{milliseconds(span.percentile_ms(0.99))} ms, "
                f"refused {span.endings[Ending.REFUSED]}"
            )
            whole.add(row.whole)
        parts.append(f"refused so far: {refusals(whole)}")
        parts.append(f"failed {whole.endings[Ending.FAILED]}")
        parts.append(f"engines up {view.engines_up}/{len(view.fleet.members)}")
        parts += [f"{pool.name} in flight {pool.in_flight}/{pool.slots}" for pool in view.pools]
        parts.append(f"waiting {sum(map(view.waiting, range(len(ROWS))))}")
        if view.sessions_text:
            parts.append(view.sessions_text)
        self._write([f"{view.seconds:5.0f} s  " + " | ".join(parts)])

    def close(self, summary: list[str]) -> None:
        self._write(summary)

    def _write(self, lines: list[str]) -> None:
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
