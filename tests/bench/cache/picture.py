"""The picture of the README: cached-token share and P99 of the first byte of each contender as bars, as SVG without any library.

It brings its own background, so it reads on a light and on a dark page; the subject's bars have a colour of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tests.bench.cache.contenders import SUBJECT
from tests.bench.cache.run import Figures
from tests.bench.slo.picture import COLOURS

WIDTH = 860
NAMES, GAP, RIGHT, TOP, ROW, BAR = 170, 110, 70, 56, 28, 18


def picture(measured: Mapping[str, Figures]) -> str:
    height = TOP + ROW * len(measured) + 16
    panel = (WIDTH - NAMES - GAP - RIGHT) / 2
    shares = [100 * one.cached_share for one in measured.values()]
    times = [one.first_byte_p99_ms for one in measured.values()]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img">',
        "<title>Prompt tokens found in the KV cache, and P99 of the first byte</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, name in enumerate(measured):
        y = TOP + ROW * number + BAR / 2 + 4
        weight = ' font-weight="bold"' if name == SUBJECT else ""
        parts.append(
            f'<text x="{NAMES - 10}" y="{y:.1f}" text-anchor="end" fill="#222222"{weight}>{escape(name)}</text>'
        )
    names = list(measured)
    parts += _bars(NAMES, panel, "prompt tokens found in the cache", names, shares, 100.0, "%")
    parts += _bars(NAMES + panel + GAP, panel, "first byte, P99", names, times, max(times), "ms")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(
    left: float,
    width: float,
    title: str,
    names: Sequence[str],
    values: Sequence[float],
    largest: float,
    unit: str,
) -> list[str]:
    bottom = TOP + ROW * len(names)
    parts = [
        f'<text x="{left:.1f}" y="{TOP - 18}" fill="#222222" font-weight="bold">{title}</text>',
        f'<line x1="{left:.1f}" y1="{TOP - 6}" x2="{left:.1f}" y2="{bottom}" stroke="#dddddd"/>',
    ]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        y = TOP + ROW * number
        length = width * value / largest
        colour = COLOURS[0] if name == SUBJECT else COLOURS[6]
        parts.append(f'<rect x="{left:.1f}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
        parts.append(
            f'<text x="{left + length + 6:.1f}" y="{y + BAR / 2 + 4:.1f}" fill="#444444">{value:.0f} {unit}</text>'
        )
    return parts
