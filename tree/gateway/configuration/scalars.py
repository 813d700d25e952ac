"""One YAML scalar to one Python value of the type that its setting has.

`${NAME}` is replaced from the environment, anywhere in a scalar; `$${` is a literal `${`. A scalar that is one `${NAME}` and nothing
else, quoted or not (inside `{...}` YAML wants the quotes), takes the type of its setting, so `port: ${PORT}` works; any other
scalar with `${NAME}` in it is text.

Numbers are decimal, as in YAML 1.2: `010`, `0x10`, `1_000` and `1:30` (YAML 1.1's octal, hexadecimal, grouping and base 60) are
refused rather than read as a number that the writer may not have meant, and so are infinities and NaN. Booleans are `true` and
`false` only. Text that YAML would read as something else (`1`, `yes`, `null`) needs quotes.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml

_TEXT = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_REFERENCE = re.compile(r"(?P<escaped>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<broken>\$\{)")
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


class WrongValue(Exception):
    """Raised when a scalar cannot become its setting's value; the text is the fault's message."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar after substitution. `bare` is text whose type is still open: it was not quoted, or it is one `${NAME}`."""

    text: str
    bare: bool
    from_environment: bool
    tag: str


def expand(node: yaml.ScalarNode, environment: Mapping[str, str]) -> Scalar:
    """Puts the environment's values in; raises WrongValue that names every variable which is not set."""
    unset: list[str] = []
    used = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal used
        if match["escaped"]:
            return "${"
        if match["broken"]:
            raise WrongValue("has a `${` that no `NAME}` follows; write `$${` for a literal `${`")
        used = True
        if match["name"] not in environment:
            unset.append(match["name"])
        return environment.get(match["name"], "")

    text = _REFERENCE.sub(replacement, node.value)
    if unset:
        names = ", ".join(dict.fromkeys(unset))
        raise WrongValue(
            f"environment variable {names} is not set; set it, or write `$${{` for a literal `${{`"
        )
    whole = _WHOLE.fullmatch(node.value) is not None
    bare = whole or (node.style is None and not used)
    return Scalar(text, bare, used, node.tag)


def is_null(node: yaml.Node) -> bool:
    """Whether nothing was written, or `null`, or `~`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def as_value(scalar: Scalar, kind: Any) -> Any:
    """`scalar` as `kind`, which is str, bool, int, float or an enumeration of words."""
    if kind is bool:
        return _as_boolean(scalar)
    if kind in (int, float):
        return _as_number(scalar, kind)
    text = _as_text(scalar)
    return _as_word(text, kind, scalar.from_environment) if issubclass(kind, Enum) else text


def suggestion(word: str, known: list[str]) -> str:
    """` (did you mean X?)`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word[:100], known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _as_boolean(scalar: Scalar) -> bool:
    word = scalar.text.strip().lower()
    if not scalar.bare or word not in ("true", "false"):
        raise WrongValue("is not a boolean; allowed: true, false, without quotes")
    return word == "true"


def _as_number(scalar: Scalar, kind: type[int] | type[float]) -> int | float:
    text = scalar.text.strip()
    if kind is int:
        wrong, pattern = "is not a whole number; allowed: decimal digits without quotes", _INTEGER
    else:
        wrong, pattern = "is not a number; allowed: a finite decimal number without quotes", _NUMBER
    if not scalar.bare or not pattern.fullmatch(text):
        raise WrongValue(wrong)
    number = float(text)
    if not math.isfinite(number):
        raise WrongValue(wrong)
    # Finite as a float means at most 309 digits, far below the length at which int() refuses a string.
    return int(text) if kind is int else number


def _as_text(scalar: Scalar) -> str:
    if scalar.tag == _NULL:
        raise WrongValue("has no value; give it one, or remove the key")
    if scalar.tag != _TEXT:
        raise WrongValue('is not text; put it in quotes: "..."')
    if any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in scalar.text):
        raise WrongValue("holds a control character or line break; allowed: printable text")
    return scalar.text


def _as_word(text: str, kind: type[Enum], hidden: bool) -> Enum:
    words = [str(member.value) for member in kind]
    if text in words:
        return kind(text)
    said = "has an unknown value" if hidden else f"is an unknown value{suggestion(text, words)}"
    raise WrongValue(f"{said}; allowed: {', '.join(words)}")
