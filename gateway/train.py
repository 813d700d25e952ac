"""`headrace train`: from labelled lines to the classifier's file.

In: UTF-8 lines `type<TAB>text`; empty ones and those that begin with `#` are passed over, `default` is a type like the others. Out: the file,
and on standard output how the lines that were held out fared: accuracy, what is left of it above a confidence, and a table of confusion.
Every fault goes to standard error with file and line, and nothing is written then. Exit code 0, or 2 where there was a fault.
The file is replaced at once: a gateway that reads it at that moment reads the old one or the new one.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.classifier_file import MAX_BYTES, written
from gateway.configuration import ConfigurationError, business_type_names
from gateway.configuration.faults import printable
from gateway.configuration.spelling import name_fault
from policies.classifier_training import FOLDS, HeldOut, TooFewLines, train

MAX_SHOWN_FAULTS = 20
NOTHING = "(nothing)"
"""What was said of a line that holds nothing that was learned."""


def train_command(
    file: str, out: str, config: str | None, min_confidence: float, environment: Mapping[str, str]
) -> int:
    """The exit code. With `config` only names of its business types are allowed."""
    try:
        known = business_type_names(config, environment) if config else None
        examples, faults = labelled(Path(file).read_bytes(), known)
    except (ConfigurationError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if faults:
        return _refused(file, faults)
    try:
        classifier, held_out = train(examples)
    except TooFewLines as error:
        return _refused(file, [(0, str(error))])
    content = written(classifier)
    if len(content) > MAX_BYTES:
        return _refused(file, [(0, "teaches more than a model may hold; give fewer types or shorter lines")])
    try:
        _replace(out, content)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(report(held_out, min_confidence))
    sys.stdout.write(f"{out}: {len(classifier.weights)} features, {len(content) / 1000:.1f} KB\n")
    return 0


def labelled(
    content: bytes, known: frozenset[str] | None
) -> tuple[list[tuple[str, str]], list[tuple[int, str]]]:
    """The examples, and the faults with their lines, counted from 1."""
    examples: list[tuple[str, str]] = []
    faults: list[tuple[int, str]] = []
    first: dict[str, tuple[int, str]] = {}
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            faults.append((number, "is not UTF-8"))
            continue
        if not line.strip() or line.startswith("#"):
            continue
        name, tab, text = line.partition("\t")
        name, text = name.strip(), text.strip()
        earlier = first.setdefault(text, (number, name))
        if not tab or not text:
            faults.append((number, "has no text; allowed: a business type, a tab, then the text"))
        elif message := name_fault(name):
            faults.append((number, f"{name[:50]!r} {message}"))
        elif known is not None and name not in known:
            faults.append((number, f"{name!r} is unknown; allowed: {', '.join(sorted(known))}"))
        elif earlier[1] != name:
            faults.append((number, f"is labelled {earlier[1]!r} on line {earlier[0]}; a text is of one type"))
        else:
            examples.append((name, text))
    return examples, faults


def report(held_out: Sequence[HeldOut], min_confidence: float) -> str:
    """What the command prints of the lines that were held out."""
    right = sum(one.said == one.labelled for one in held_out)
    sure = [one for one in held_out if one.said and one.confidence >= min_confidence]
    sure_right = sum(one.said == one.labelled for one in sure)
    lines = [
        f"{len(held_out)} different lines, each classified by what the other {FOLDS - 1} of {FOLDS} parts teach",
        f"accuracy {_percent(right, len(held_out))}",
        f"at confidence {min_confidence:g} and above {_percent(len(sure), len(held_out))} of them are decided,"
        f" {_percent(sure_right, len(sure))} of these right",
        "",
    ]
    pairs = Counter((one.labelled, one.said or NOTHING) for one in held_out)
    types = sorted({one.labelled for one in held_out})
    columns = [*types, NOTHING] if any(said == NOTHING for _, said in pairs) else types
    first = max(len(name) for name in ("labelled", *types))
    lines.append("  ".join([f"{'labelled':{first}}", *columns]) + "   (what was said)")
    for name in types:
        cells = [f"{pairs[name, said]:>{len(said)}}" for said in columns]
        lines.append("  ".join([f"{name:{first}}", *cells]))
    return "\n".join(lines) + "\n\n"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _refused(file: str, faults: Sequence[tuple[int, str]]) -> int:
    for line, message in faults[:MAX_SHOWN_FAULTS]:
        place = f"{file}:{line}" if line else file
        sys.stderr.write(f"{printable(f'{place}: {message}')}\n")
    if len(faults) > MAX_SHOWN_FAULTS:
        sys.stderr.write(f"{printable(file)}: and {len(faults) - MAX_SHOWN_FAULTS} faults more\n")
    return 2


def _replace(path: str, content: bytes) -> None:
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
