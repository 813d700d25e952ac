"""Whether a regular expression may be tried on the texts of strangers.

`re` goes back and tries again where a pattern can fit a text in more than one way, and on a text that almost fits it tries them all while
nothing else runs in the gateway. So the ways are estimated, as a power of ten, and a pattern above `MAX_EXPONENT` is refused:
a start anywhere in 1,024 characters and every `*`, `+` or `{m,}` count 3, `{m,n}` counts log10(n-m+1), a choice of k log10(k), a repeat
times what stands inside of it; a possessive repeat (`a++`) is gone through once and not again. So `lost.*today` and
`lost.{0,20}card.{0,20}today` pass, and `(a+)*`, `(a|b)+` and a second `.*` do not. What passes takes some 10 ms at worst (`.*x`: 3 ms).
Limits: an upper estimate that does not see that `(foo|bar)+` fits in one way only; written possessively it passes. Letters are not looked at.
"""

from __future__ import annotations

import re
import warnings
from math import log10

from policies.classify import PATTERN_CHARACTERS

MAX_PATTERN_LENGTH = 500
MAX_EXPONENT = 6.5

_TOKEN = re.compile(
    r"""
      (?P<atom>\\. | \[\^?\]?(?:\\.|[^\]\\])*\] | \(\?\#[^)]*\))
    | (?P<open>\((?:\?(?:P<\w+>|P=\w+|\(\w+\)|<[=!]|[:=!>]|[a-zA-Z-]+:?))?)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?:(?P<sign>[*+?])|\{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*)\})(?P<possessive>\+?)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with `pattern`, or None. The message does not quote it."""
    if not 1 <= len(pattern) <= MAX_PATTERN_LENGTH:
        return f"is empty or too long; allowed: 1 to {MAX_PATTERN_LENGTH} characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "possible nested set": it will mean something else one day
            compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        said = error.msg if isinstance(error, re.error) else "it is ambiguous or too large"
        return f"is not a regular expression ({said}); allowed: the syntax of Python's `re`"
    if compiled.flags & re.VERBOSE:
        return "is verbose; allowed: a pattern without blanks and comments that do not count"
    if compiled.match(""):
        return "fits an empty text, and so every request; allowed: what needs a character"
    if exponent(pattern) > MAX_EXPONENT:
        return (
            "could take for ever on some texts, since it can fit in too many ways; "
            "allowed: one repeat without a bound, others such as `.{0,20}` or `a++`"
        )
    return None


class _Group:
    """An open group: the exponent of the branch that is being read, and of the largest before it."""

    def __init__(self) -> None:
        self.branch = 0.0
        self.largest = 0.0
        self.branches = 1

    @property
    def exponent(self) -> float:
        return max(self.branch, self.largest) + log10(self.branches)


def exponent(pattern: str) -> float:
    """Power of ten of the ways that are tried at worst; no exact figure above `MAX_EXPONENT`. `pattern` is one that compiles."""
    groups = [_Group()]
    start = log10(PATTERN_CHARACTERS)
    last = 0.0  # what the atom or group before a repeat counts
    for token in _TOKEN.finditer(pattern):
        group = groups[-1]
        if token["open"]:
            groups.append(_Group())
        elif token["close"]:
            last = groups.pop().exponent
            groups[-1].branch += last
        elif token["bar"]:
            group.largest = max(group.largest, group.branch)
            group.branch = last = 0.0
            group.branches += 1
        elif token["atom"] or token["other"]:
            last = 0.0
        else:
            least, most = _bounds(token)
            if token["possessive"]:
                once = start + sum(one.branch for one in groups) + log10(most + 1)
                if once > MAX_EXPONENT:
                    return once
                repeated = 0.0
            else:
                repeated = last * most + log10(max(most - least, 0) + 1)
                if repeated > MAX_EXPONENT:
                    return repeated
            group.branch += repeated - last
            last = repeated
        if start + groups[-1].exponent > MAX_EXPONENT:
            return start + groups[-1].exponent
    return start + groups[0].exponent


def _bounds(token: re.Match[str]) -> tuple[int, int]:
    if token["sign"]:
        return (1 if token["sign"] == "+" else 0), (1 if token["sign"] == "?" else PATTERN_CHARACTERS)
    least = min(int(token["least"] or 0), PATTERN_CHARACTERS)
    if not token["comma"]:
        return least, least
    return least, min(int(token["most"] or PATTERN_CHARACTERS), PATTERN_CHARACTERS)
