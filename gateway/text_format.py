"""Finds series by name on a page in Prometheus' text format; the rest of the page, of which a few lines in a thousand matter, is searched but never parsed.

Read as Prometheus does: labels with escapes, blanks and tabs between the parts, CRLF, a last line without its end, timestamps (milliseconds, or the seconds of OpenMetrics), exemplars.
A line of a wanted name that is none of that or longer than 8 KB, and a value that is not a finite number, is a sample whose value is None: it must not look as if it were not there.
Nothing here raises, whatever the bytes, and time grows with their number alone. `MOST_SAMPLES` bounds what one page may hold of the names: with more it tells nothing.

Limits: a name in quotes (`{"name",...}`) and a line that begins with a blank are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from math import isfinite
from typing import NamedTuple

MOST_SAMPLES = 2048
_LONGEST_LINE = 8192
_LONGEST_NUMBER = 64
_NO_SECONDS = 1e11
"""The year 5138: a timestamp beyond is in milliseconds."""
_STRING = rb'"((?:[^"\\\n]++|\\.)*+)"'
_LABEL = re.compile(rb"([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*" + _STRING)
_LINE = re.compile(
    rb'(?:[ \t]*\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\}|(?=[ \t]))'
    rb"[ \t]*([^\s#]+)(?:[ \t]+([^\s#]+))?\s*(?:#.*)?"
)
_ESCAPED = re.compile(rb"\\(.)")


class Sample(NamedTuple):
    labels: bytes
    """As they stand between the braces."""
    value: float | None
    at: float | None
    """Unix time in seconds where the line says it."""


_UNREADABLE = Sample(b"", None, None)


def samples_of(page: bytes, names: Iterable[str]) -> dict[str, list[Sample]]:
    """By name; one that is not on the page is not in it."""
    found: dict[str, list[Sample]] = {}
    lines = list(islice(_lines_of(tuple(names)).finditer(b"\n" + page), MOST_SAMPLES + 1))
    if len(lines) > MOST_SAMPLES:
        return found
    for line in lines:
        found.setdefault(line[1].decode(), []).append(_sample(line[2]))
    return found


def labels_of(sample: Sample) -> dict[bytes, bytes]:
    """Without their escapes."""
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(sample.labels)}


def number(text: bytes) -> float | None:
    """None for what is not finite, or no number."""
    if len(text) > _LONGEST_NUMBER or b"_" in text:  # which Python takes between digits
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


@cache
def _lines_of(names: tuple[str, ...]) -> re.Pattern[bytes]:
    """Begins with literal bytes, which `re` searches for at memory speed."""
    return re.compile(rf"\n({'|'.join(map(re.escape, names))})(?![a-zA-Z0-9_:])([^\n]*)".encode())


def _sample(line: bytes) -> Sample:
    match = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return _UNREADABLE
    labels, value, at = match.groups()
    if at is None:
        return Sample(labels or b"", number(value), None)
    seconds = number(at)
    if seconds is None:
        return _UNREADABLE
    return Sample(labels or b"", number(value), seconds / 1e3 if seconds > _NO_SECONDS else seconds)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\n" if match[1] == b"n" else match[1]
