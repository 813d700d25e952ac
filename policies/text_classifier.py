"""Which business type a text most likely is of, by the words that labelled lines of each type have (`policies.classifier_training`).

Decides: the most likely of the types it was trained with, and how likely, 0 to 1; None where a text holds nothing that was learned.
What counts of a text is whether it holds a feature, not how often: each word in lower case without digits, the first `STEM_CHARACTERS` of a
longer one, and, in scripts that put no blanks between words (Chinese, Japanese, Thai, ...), each character and each two in a row. No list of
words is needed. Of a longer text only its beginning and its end are read: `HEAD_CHARACTERS` and `TAIL_CHARACTERS`, and of these no more than
`DENSE_HEAD_CHARACTERS` and `DENSE_TAIL_CHARACTERS` in scripts without blanks.
Formula: each feature has one weight per type, in hundredths of a natural logarithm; of the n features that were learned the weights are
added up per type, z = sum / 100 / sqrt(n + `DOUBT_FEATURES`), and confidence is the softmax of `scale` z. The square root stands for the
dependence of features on each other, which a plain sum takes for as much evidence again (a long text would always be certain); what is added to
n keeps one word from being enough.
Types count as equally frequent, however many lines each was trained with.
Bounds: `MAX_FEATURES` features, `MAX_TYPES` types and `MAX_WEIGHTS` weights. Whole numbers are added, so the order of features does not matter.
Cost: with three types on 2 busy cores 40 us for 1 KB of English and 65 us for 1 KB of Chinese, 130 us at most; more types cost a sum each.
Limits: a text about something else that shares telling words with a type may be taken for one, unless such texts are among the lines, labelled
`default`; order of words, negation and mixed intents are not seen; digits neither, so that a model holds no numbers of customers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import Final, Literal, NamedTuple

HEAD_CHARACTERS = 512
TAIL_CHARACTERS = 256
DENSE_HEAD_CHARACTERS = 160
DENSE_TAIL_CHARACTERS = 80
"""Of scripts without blanks, in which a character says as much as four letters do."""
STEM_CHARACTERS = 5
WORD_CHARACTERS = 24
DOUBT_FEATURES = 16
MAX_TYPES = 64
MAX_FEATURES = 1 << 16
MAX_WEIGHTS = 1 << 18
MAX_WEIGHT = 2000
"""In hundredths; more than the logarithm of what any number of lines can show."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, and what Chinese and Japanese are written in; all of two bytes in UTF-16."""
_WORD = re.compile(rf"[^\W\d_{_UNSPACED}]+")
_SPACED = re.compile(rf"[^{_UNSPACED}]+")
_ASCII_WORDS = bytes(code | 32 if code < 128 and chr(code).isalpha() else 32 for code in range(256))
"""Letters to lower case, all else to blanks: splitting that takes a sixth of the time of the regular expression."""
_ORDER: Final[Literal["little", "big"]] = "little" if memoryview(b"\1\0").cast("H")[0] == 1 else "big"
_UTF_16 = "utf-16-le" if _ORDER == "little" else "utf-16-be"

Feature = str | int
"""A word, or one or two characters as the number that their UTF-16 is: numbers are cut out of a text three times faster than texts."""


class Classified(NamedTuple):
    name: str
    confidence: float


def features(text: str) -> set[Feature]:
    """What training and `classify` know a text by."""
    text = _ends(text, HEAD_CHARACTERS, TAIL_CHARACTERS)
    is_ascii = text.isascii()
    if is_ascii:
        words = text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split()
    else:
        words = _WORD.findall(text.lower())
    found: set[Feature] = {*words, *[word[:STEM_CHARACTERS] for word in words]}
    if not is_ascii:
        dense = _ends(_SPACED.sub(" ", text), DENSE_HEAD_CHARACTERS, DENSE_TAIL_CHARACTERS)
        units = dense.encode(_UTF_16)
        size = len(units)
        found.update(memoryview(units).cast("H"))
        found.update(memoryview(units[: size & ~3]).cast("I"))
        found.update(memoryview(units[2 : 2 + (size - 2 & ~3)]).cast("I"))
        found.discard(_BLANK)
    return found


def spelled(feature: Feature) -> str:
    """As a text, in which words and characters cannot be taken for each other."""
    if isinstance(feature, str):
        return feature
    return feature.to_bytes(2 if feature < 1 << 16 else 4, _ORDER).decode(_UTF_16)


def feature_of(text: str) -> Feature:
    """What `spelled` has spelled so."""
    if len(text) <= 2 and _HAS_UNSPACED.search(text):
        return int.from_bytes(text.encode(_UTF_16, "surrogatepass"), _ORDER)
    return text


def _ends(text: str, head: int, tail: int) -> str:
    return text if len(text) <= head + tail else f"{text[:head]} {text[-tail:]}"


_BLANK = ord(" ")
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def scores(text: str, weights: Mapping[Feature, tuple[int, ...]]) -> list[float] | None:
    """z of each type; None where nothing in the text was learned."""
    rows = list(filter(None, map(weights.get, features(text))))
    if not rows:
        return None
    divisor = 100 * sqrt(len(rows) + DOUBT_FEATURES)
    return [sum(column) / divisor for column in zip(*rows, strict=True)]


def likelihoods(scores: Sequence[float], scale: float) -> list[float]:
    """The softmax of `scale` times `scores`."""
    highest = max(scores)
    parts = [exp(scale * (score - highest)) for score in scores]
    whole = sum(parts)
    return [part / whole for part in parts]


class TextClassifier:
    """Never changed afterwards. `weights` has of each feature one weight per type, in the order of `types`."""

    __slots__ = ("scale", "types", "weights")

    def __init__(
        self, types: tuple[str, ...], scale: float, weights: Mapping[Feature, tuple[int, ...]]
    ) -> None:
        self.types = types
        self.scale = scale
        self.weights = weights

    def classify(self, text: str) -> Classified | None:
        found = scores(text, self.weights)
        if found is None:
            return None
        best = found.index(max(found))
        return Classified(self.types[best], likelihoods(found, self.scale)[best])
