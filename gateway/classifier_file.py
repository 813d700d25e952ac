"""A trained classifier as a file: one JSON object with `format`, `version`, `types`, `scale` and `features` (of each its weights).

`read_model` raises `UnusableModel` and nothing else, whatever the file holds: at most `MAX_BYTES` of it are read, and a weight or a type beyond
the bounds of `policies.text_classifier` is refused. The one that was read last is kept, so that a configuration is checked and used with one reading.
"""

from __future__ import annotations

import os
from functools import lru_cache
from math import isfinite
from typing import Any

import orjson

from policies.text_classifier import (
    MAX_FEATURES,
    MAX_TYPES,
    MAX_WEIGHT,
    MAX_WEIGHTS,
    Feature,
    TextClassifier,
    feature_of,
    spelled,
)

MAX_BYTES = 16 << 20
_FORMAT = "headrace text classifier"
_VERSION = 1
_NEEDED = "a file that `headrace train` has written is needed"


class UnusableModel(Exception):
    """The text is a fault's message."""


def written(classifier: TextClassifier) -> bytes:
    """The same for the same classifier."""
    return orjson.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "types": classifier.types,
            "scale": classifier.scale,
            "features": dict(sorted((spelled(feature), row) for feature, row in classifier.weights.items())),
        }
    )


def read_model(path: str) -> TextClassifier:
    try:
        if not os.path.isfile(path):  # asked first: reading a pipe would wait for ever
            raise UnusableModel(f"is not a file here; {_NEEDED}")
        stat = os.stat(path)
        return _read(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except (OSError, ValueError):  # ValueError: a path with a NUL, or what is no JSON
        raise UnusableModel(f"cannot be read as JSON; {_NEEDED}") from None


@lru_cache(maxsize=1)
def _read(path: str, modified_ns: int, size: int, inode: int) -> TextClassifier:
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UnusableModel(f"is too long; at most {MAX_BYTES} bytes are allowed")
    return _model(orjson.loads(content))


def _model(found: Any) -> TextClassifier:
    if type(found) is not dict or found.get("format") != _FORMAT:
        raise UnusableModel(f"is not a classifier; {_NEEDED}")
    if found.get("version") != _VERSION:
        raise UnusableModel(f"is of another version; {_NEEDED} by this version")
    types: Any = found.get("types")
    scale: Any = found.get("scale")
    rows: Any = found.get("features")
    if not _are_types(types):
        raise UnusableModel(f"has no right list of `types`; {_NEEDED}")
    if type(scale) not in (int, float) or not isfinite(scale) or scale <= 0:
        raise UnusableModel(f"has no right `scale`; {_NEEDED}")
    if type(rows) is not dict or len(rows) > min(MAX_FEATURES, MAX_WEIGHTS // len(types)):
        raise UnusableModel(f"has no `features`, or too many; {_NEEDED}")
    same: dict[tuple[int, ...], tuple[int, ...]] = {}
    weights: dict[Feature, tuple[int, ...]] = {}
    for name, row in rows.items():
        if not _are_weights(row, len(types)):
            raise UnusableModel(f"has a feature without a right weight for each type; {_NEEDED}")
        shared = tuple(row)
        weights[feature_of(name)] = same.setdefault(shared, shared)
    return TextClassifier(tuple(types), float(scale), weights)


def _are_types(types: Any) -> bool:
    if type(types) is not list or not 2 <= len(types) <= MAX_TYPES:
        return False
    return all(type(name) is str and name for name in types) and len(set(types)) == len(types)


def _are_weights(row: Any, number: int) -> bool:
    if type(row) is not list or len(row) != number:
        return False
    return all(type(weight) is int and -MAX_WEIGHT <= weight <= MAX_WEIGHT for weight in row)
