"""The model list: the union of what the healthy backends serve, every field as its engine sent it.

A name that several backends serve is listed once, with the card of the first. An alias is listed with its model's card under its own
`id`, if the model is there. Each listed name can be called, and each callable name is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policies.terms import BackendId
from routing.fleet import Fleet

Card = dict[str, Any]


class ModelCatalogue:
    def __init__(self) -> None:
        self._cards: dict[BackendId, list[Card]] = {}

    def learn(self, backend_id: BackendId, cards: list[Card]) -> None:
        self._cards[backend_id] = cards

    def keep_only(self, backend_ids: set[BackendId]) -> None:
        """Forget backends that a new configuration no longer names."""
        self._cards = {id: cards for id, cards in self._cards.items() if id in backend_ids}

    def cards(self, fleet: Fleet, aliases: Mapping[str, str]) -> list[Card] | None:
        """None where no healthy backend has told its models."""
        found: dict[str, Card] = {}
        has_told = False
        for backend in fleet:
            cards = self._cards.get(backend.id)
            if cards is None or not backend.is_present():
                continue
            has_told = True
            for card in cards:
                found.setdefault(str(card["id"]), card)
        for alias, model in aliases.items():
            if model in found:
                found[alias] = {**found[model], "id": alias}
        return list(found.values()) if has_told else None
