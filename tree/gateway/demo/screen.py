"""The demo on a terminal: the introduction once, below it tables that are redrawn in place.

Fits 80 columns and 24 rows; from `WIDE_COLUMNS` on the Chinese names are shown too. A redraw costs some 10 ms of this process, hence two a second.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.demo.business import TYPES
from gateway.demo.figures import WINDOW_SECONDS, Ending, Span
from gateway.demo.fleet import POOLS
from gateway.demo.view import MAX_EVENTS, View, milliseconds, share

WIDE_COLUMNS = 100


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

    def show(self, view: View, now: float) -> None:
        pools = Table.grid(padding=(0, 3, 0, 0))
        pools.add_row(*(self._pool(view, plan.name, plan.window) for plan in POOLS))
        self._live.update(Group(self._types(view, now), "", pools, "", self._events(view)), refresh=True)

    def close(self, summary: list[str]) -> None:
        self._live.stop()
        for line in summary:
            self._console.print(Text(line), soft_wrap=True)

    def _types(self, view: View, now: float) -> Table:
        wide = self._console.width >= WIDE_COLUMNS
        table = _table(2 if wide else 1)
        table.add_column(f"last {WINDOW_SECONDS} s", no_wrap=True)
        for title in ("sent/s", "in target", "target", "P50", "P99", "refused", "failed"):
            table.add_column(title, justify="right", no_wrap=True)
        for kind, figures in zip(TYPES, view.load.figures, strict=True):
            span, rate = figures.recent(now)
            table.add_row(
                f"{kind.name} {kind.chinese_name}" if wide else kind.name,
                f"{rate:.0f}",
                Text(share(span.inside_share), _colour(span.inside_share)),
                f"{kind.target_ms} ms",
                milliseconds(span.percentile_ms(0.5)),
                milliseconds(span.percentile_ms(0.99)),
                _count(span, Ending.REFUSED),
                _count(span, Ending.FAILED),
            )
        return table

    def _pool(self, view: View, name: str, window: int) -> Table:
        table = _table(1)
        table.add_column("engine", no_wrap=True, min_width=13)
        table.add_column("", no_wrap=True, min_width=4)
        table.add_column("in flight", justify="right", no_wrap=True)
        table.add_column("requests", justify="right", no_wrap=True)
        for member in view.fleet.members:
            if member.plan.name != name:
                continue
            up = view.gateway.up.get(member.name, False)
            table.add_row(
                Text(member.name, "" if up else "red"),
                Text("up", "green") if up else Text("down", "bold red"),
                f"{view.gateway.in_flight[member.name]}/{window}",
                f"{view.gateway.requests[member.name]}",
            )
        return table

    def _events(self, view: View) -> Text:
        whole = [figures.whole for figures in view.load.figures]
        refused, failed = (
            sum(span.endings[ending] for span in whole) for ending in (Ending.REFUSED, Ending.FAILED)
        )
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(
            f"{view.seconds:.0f} s: {sum(span.sent for span in whole)} sent, {refused} refused, {failed} failed, "
            f"{view.gateway.moved_here.total()} moved, {view.gateway.waiting} waiting   Ctrl-C ends\n",
            "bold",
        )
        lines = [f"{seconds:4.0f} s  {event}" for seconds, event in view.events]
        text.append("\n".join(lines + [""] * (MAX_EVENTS - len(lines))))
        return text


def _table(gap: int) -> Table:
    return Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)


def _count(span: Span, ending: Ending) -> Text:
    return Text(str(span.endings[ending]), "red" if span.endings[ending] else "")


def _colour(inside: float | None) -> str:
    if inside is None:
        return ""
    return "green" if inside >= 0.99 else "yellow" if inside >= 0.9 else "red"
