"""The demo on a terminal: the introduction once, below it tables that are redrawn in place.

Fits 80 columns and 24 rows; from `WIDE_COLUMNS` on the Chinese names are shown too. A redraw costs some 10 ms of this process, hence two a second.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.demo.figures import WINDOW_SECONDS, Ending
from gateway.demo.sparkline import mark, seconds_per_mark
from gateway.demo.view import MAX_EVENTS, ROWS, View, milliseconds, refusals, share

WIDE_COLUMNS = 100
_FIXED_COLUMNS = 62
"""Taken by a row in front of its sparkline, without the Chinese name."""
_CHINESE_COLUMNS = 13
_MOST_MARKS = 48
_PHASE_STYLES = {"burst": "bold white on red", "outage": "bold black on yellow"}


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def open(self, introduction: list[str]) -> None:
        headline, *rest = introduction
        self._console.print(Text(headline, "bold"), soft_wrap=True)
        for line in rest:
            self._console.print(Text(line, "cyan" if line.startswith(" ") else ""), soft_wrap=True)
        self._console.print()
        self._live.start()

    def event(self, seconds: float, text: str) -> None:
        """Shown with the next `show`, from the view."""

    def show(self, view: View) -> None:
        parts = (self._phase(view), self._types(view), "", self._refusals(view), self._fleet(view))
        self._live.update(Group(*parts), refresh=True)

    def close(self, summary: list[str]) -> None:
        self._live.stop()
        for line in summary:
            self._console.print(Text(line), soft_wrap=True)

    def _phase(self, view: View) -> Text:
        name, _, happens = view.headline.partition(": ")
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{view.seconds:3.0f} s ", "bold")
        text.append(name, _PHASE_STYLES.get(name, "bold green"))
        text.append(f": {happens}\n      ")
        text.append(view.recovery_text, "bold green")
        return text

    def _types(self, view: View) -> Table:
        wide = self._console.width >= WIDE_COLUMNS
        marks = self._console.width - _FIXED_COLUMNS - (_CHINESE_COLUMNS if wide else 0)
        marks = max(1, min(_MOST_MARKS, marks))
        size = seconds_per_mark(view.course.seconds, marks)
        table = _table()
        table.add_column(f"last {WINDOW_SECONDS} s", no_wrap=True)
        for title in ("inside", "target", "P50", "P99", "waiting", "refused"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("over time", no_wrap=True, min_width=marks)
        for number, (name, row) in enumerate(zip(ROWS, view.load.rows, strict=True)):
            span = row.recent(view.seconds)
            table.add_row(
                f"{name.name} {name.chinese_name}" if wide else name.name,
                Text(share(span.inside_share), _colour(span.inside_share)),
                name.target,
                milliseconds(span.percentile_ms(0.5)),
                milliseconds(span.percentile_ms(0.99)),
                f"{view.waiting(number)}",
                Text(f"{span.endings[Ending.REFUSED]}", "yellow" if span.endings[Ending.REFUSED] else ""),
                Text.assemble(
                    *((mark(value), _colour(value)) for value in view.course_of(number, size, marks))
                ),
            )
        return table

    def _refusals(self, view: View) -> Table:
        table = _table()
        table.add_column("refused so far", no_wrap=True, min_width=len("wealth-product advice"))
        table.add_column("reason", no_wrap=True)
        for name, row in zip(ROWS, view.load.rows, strict=True):
            failed = row.whole.endings[Ending.FAILED]
            failures = Text(f"  failed {failed}" if failed else "", "bold red")
            table.add_row(name.name, Text.assemble(refusals(row.whole), failures))
        return table

    def _fleet(self, view: View) -> Text:
        text = Text("\n", no_wrap=True, overflow="ellipsis")
        for pool in view.pools:
            text.append(f"{pool.name} ")
            text.append(f"{pool.up}/{pool.engines} up", "" if pool.up == pool.engines else "bold red")
            text.append(f", {pool.in_flight}/{pool.slots} in flight   ")
        if view.sessions_text:
            text.append(f"\n{view.sessions_text}")
        text.append("\n")
        lines = [f"{seconds:3.0f} s  {event}" for seconds, event in view.events]
        text.append("\n".join(lines + [""] * (MAX_EVENTS - len(lines))))
        return text


def _table() -> Table:
    return Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)


def _colour(inside: float | None) -> str:
    if inside is None:
        return ""
    return "green" if inside >= 0.99 else "yellow" if inside >= 0.9 else "red"
