"""Lines that customers of a bank could have written, with their business type: half in English, half in Chinese."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_suffix(".tsv")


def labelled_lines() -> list[tuple[str, str]]:
    pairs = [line.partition("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [(name, text) for name, _, text in pairs]
