"""How a `TextClassifier` is learned from labelled lines, and how good it is on lines that it has not seen.

In: pairs of type and text, at least `MIN_TYPES` types with `MIN_LINES` different texts each. Their order and repetitions make no difference.
Formula: naive Bayes on whether a line holds a feature. Of the share p of a type's lines that hold it, the weight is ln(p + 1/h) less its mean
over the types, where h is the harmonic mean of the numbers of lines: smoothing that is the same for all types, or the type with the fewest lines
would get every word that is rare. A feature of one line only, a word above `WORD_CHARACTERS`, or one whose weights differ by less than `MIN_SPREAD` is left out; beyond the
bounds of `policies.text_classifier` those stay that differ most in most lines.
Held out: the sorted lines of each type go round `FOLDS` folds, and the lines of each fold are classified by what the others teach. `scale` is
the one of `SCALES` with the least log loss on them, with the targets of Platt (1999), so that a confidence of 0.8 is right in about 8 of 10
cases of the kind that the lines are.
Cost: linear in the text, about 5 s for 10,000 lines.
Limits: lines that repeat each other with small changes fall into different folds and make the figures look better than they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple

from policies.text_classifier import (
    MAX_FEATURES,
    MAX_TYPES,
    MAX_WEIGHT,
    MAX_WEIGHTS,
    WORD_CHARACTERS,
    Feature,
    TextClassifier,
    features,
    likelihoods,
    scores,
    spelled,
)

FOLDS = 5
MIN_TYPES = 2
MIN_LINES = 10
MIN_FEATURE_LINES = 2
MIN_SPREAD = 30
SCALES: Sequence[float] = tuple(2.0 ** (step / 4) for step in range(-16, 17))

Weights = dict[Feature, tuple[int, ...]]
_Counts = Counter[Feature]


class HeldOut(NamedTuple):
    """A line, and what was said of it by a classifier that had not seen it; `said` is empty where nothing in it was known."""

    labelled: str
    said: str
    confidence: float


class Training(NamedTuple):
    classifier: TextClassifier
    held_out: tuple[HeldOut, ...]


class TooFewLines(ValueError):
    """Raised where there is not enough to learn from; the text says of what."""


def train(examples: Iterable[tuple[str, str]]) -> Training:
    lines = sorted(set(examples))
    numbers = Counter(name for name, _ in lines)
    types = tuple(sorted(numbers))
    if not MIN_TYPES <= len(types) <= MAX_TYPES:
        raise TooFewLines(f"there are {len(types)} types; allowed: {MIN_TYPES} to {MAX_TYPES}")
    if few := [name for name in types if numbers[name] < MIN_LINES]:
        raise TooFewLines(
            f"{few[0]!r} has {numbers[few[0]]} different lines; at least {MIN_LINES} are needed"
        )
    seen: Counter[str] = Counter()
    folds: list[int] = []
    held = [[_Counts() for _ in types] for _ in range(FOLDS)]
    held_lines = [[0] * len(types) for _ in range(FOLDS)]
    for name, text in lines:
        fold, index = seen[name] % FOLDS, types.index(name)
        seen[name] += 1
        folds.append(fold)
        held[fold][index].update(features(text))
        held_lines[fold][index] += 1
    whole = [sum((fold[index] for fold in held), _Counts()) for index in range(len(types))]
    without = [
        _weights(
            [all_of - left_out for all_of, left_out in zip(whole, held[fold], strict=True)],
            [numbers[name] - out for name, out in zip(types, held_lines[fold], strict=True)],
        )
        for fold in range(FOLDS)
    ]
    scored = [(name, scores(text, without[fold])) for (name, text), fold in zip(lines, folds, strict=True)]
    scale = _scale([(types.index(name), found) for name, found in scored if found is not None])
    return Training(
        TextClassifier(types, scale, _weights(whole, [numbers[name] for name in types])),
        tuple(_held_out(types, name, found, scale) for name, found in scored),
    )


def _weights(by_type: Sequence[_Counts], lines: Sequence[int]) -> Weights:
    smoothing = sum(1 / number for number in lines) / len(lines)
    found: list[tuple[int, str, Feature, tuple[int, ...]]] = []
    total = sum(by_type, _Counts())
    for feature, holding in total.items():
        name = spelled(feature)
        if holding < MIN_FEATURE_LINES or len(name) > WORD_CHARACTERS:
            continue
        logs = [
            log(counts[feature] / number + smoothing) for counts, number in zip(by_type, lines, strict=True)
        ]
        mean = sum(logs) / len(logs)
        row = tuple(max(-MAX_WEIGHT, min(MAX_WEIGHT, round(100 * (one - mean)))) for one in logs)
        spread = max(row) - min(row)
        if spread >= MIN_SPREAD:
            found.append((-spread * holding, name, feature, row))
    found.sort()  # names differ, so that no feature is compared
    most = min(MAX_FEATURES, MAX_WEIGHTS // len(lines))
    return {feature: row for _, _, feature, row in found[:most]}


def _scale(scored: Sequence[tuple[int, list[float]]]) -> float:
    """Of equally good ones the smallest, which is the least certain."""
    return min(SCALES, key=lambda scale: _log_loss(scored, scale))


def _log_loss(scored: Sequence[tuple[int, list[float]]], scale: float) -> float:
    doubt = 1 / (len(scored) + 2)
    loss = 0.0
    for right, found in scored:
        shares = likelihoods(found, scale)
        for index, share in enumerate(shares):
            target = 1 - doubt if index == right else doubt / (len(shares) - 1)
            loss -= target * log(max(share, 1e-300))
    return loss


def _held_out(types: Sequence[str], name: str, found: list[float] | None, scale: float) -> HeldOut:
    if found is None:
        return HeldOut(name, "", 0.0)
    best = found.index(max(found))
    return HeldOut(name, types[best], likelihoods(found, scale)[best])
