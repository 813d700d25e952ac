"""A number among the settings: its default and the range that both loaders enforce."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def bounded(default: Any, at_least: float, at_most: float) -> Any:
    """A numeric field with its default, None where it may be left open, and the inclusive range the loaders enforce."""
    return field(default=default, metadata={"at_least": at_least, "at_most": at_most})
