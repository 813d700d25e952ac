"""The picture of the README: for each contender the share inside target over time, as SVG without any library.

The burst is shaded, and a dashed line shows what the fleet allows in each phase. The colours keep their distance for the colour-blind (Okabe and Ito's
palette), and read on a light and on a dark page, since the picture brings its own background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tests.bench.slo.kinds import NOMINAL_RATE
from tests.bench.slo.schedule import WARM_UP, Phase

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 190, 44, 48
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#999999", "#000000")


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    shares: Sequence[float]
    """One for each second; not a number leaves a gap."""


def picture(lines: Sequence[Line], phases: Sequence[Phase], saturation_rate: float) -> str:
    shown = [phase for phase in phases if phase.name != WARM_UP]
    seconds = sum(phase.seconds for phase in shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        "<title>Share of the requests answered inside their target, over time</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_phases(shown, seconds, saturation_rate),
        *_axes(seconds),
    ]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        width = 2.5 if number == 0 else 1.5
        stroke = f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"'
        parts += [f'<polyline {stroke} points="{points}"/>' for points in _unbroken(line.shares, seconds)]
        y = TOP + 10 + number * 20
        x = WIDTH - RIGHT + 16
        parts.append(
            f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colour}" stroke-width="{width}"/>'
        )
        parts.append(f'<text x="{x + 28}" y="{y + 4}" fill="#222222">{escape(line.name)}</text>')
    y = TOP + 10 + len(lines) * 20
    x = WIDTH - RIGHT + 16
    parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="#666666" stroke-dasharray="5 4"/>')
    parts.append(f'<text x="{x + 28}" y="{y + 4}" fill="#222222">the fleet allows</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _phases(phases: Sequence[Phase], seconds: float, saturation_rate: float) -> list[str]:
    parts, begin = [], 0.0
    for phase in phases:
        left, right = _x(begin, seconds), _x(begin + phase.seconds, seconds)
        if phase.factor > 1:
            parts.append(
                f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT - TOP - BOTTOM}" fill="#f3ece0"/>'
            )
        label = f"{phase.factor:g} x"
        parts.append(
            f'<text x="{(left + right) / 2:.1f}" y="{TOP - 10}" text-anchor="middle" fill="#444444">{label}</text>'
        )
        y = _y(min(1.0, saturation_rate / (phase.factor * NOMINAL_RATE)))
        parts.append(
            f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#666666" stroke-dasharray="5 4"/>'
        )
        begin += phase.seconds
    return parts


def _axes(seconds: float) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444444">{percent} %</text>'
        )
    step = 5 if seconds <= 60 else 20
    for second in range(0, math.floor(seconds) + 1, step):
        x = _x(second, seconds)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#444444">{second}</text>'
        )
    middle = (LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#444444">seconds</text>'
    )
    parts.append(
        f'<text x="{LEFT}" y="16" fill="#222222" font-weight="bold">requests answered inside their target</text>'
    )
    return parts


def _unbroken(shares: Sequence[float], seconds: float) -> list[str]:
    """The points of each stretch without a gap; a second is drawn at its middle."""
    stretches: list[list[str]] = [[]]
    for second, share in enumerate(shares):
        if math.isnan(share):
            stretches.append([])
        else:
            stretches[-1].append(f"{_x(second + 0.5, seconds):.1f},{_y(share):.1f}")
    return [" ".join(points) for points in stretches if points]


def _x(second: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * second / seconds


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
