"""The model list is the union of what the healthy backends serve."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.models import Card, ModelCatalogue
from policies.absence import AbsenceRules
from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan
from routing.fleet import Fleet

A, B, C = (BackendId(id) for id in "abc")
CARD: Card = {
    "id": "m",
    "object": "model",
    "root": "/models/m",
    "parent": None,
    "max_model_len": 4096,
    "permission": [{"id": "p", "allow_sampling": True}],
    "unheard_of": {"x": [1.5]},
}


def fleet(*ids: BackendId) -> Fleet:
    made = Fleet(AbsenceRules())
    made.configure([BackendPlan(id, PoolName("p")) for id in ids])
    return made


def away(backends: Fleet, id: BackendId) -> None:
    backend = backends.get(id)
    assert backend is not None
    backends.mark_unreachable(backend, 0.0)


def test_every_field_of_a_card_is_kept() -> None:
    catalogue = ModelCatalogue()
    catalogue.learn(A, [copy.deepcopy(CARD)])
    assert catalogue.cards(fleet(A), {}) == [CARD]


def test_the_first_backend_that_serves_a_name_describes_it() -> None:
    catalogue = ModelCatalogue()
    catalogue.learn(B, [{"id": "m", "from": "b"}, {"id": "n", "from": "b"}])
    catalogue.learn(A, [{"id": "m", "from": "a"}])
    assert catalogue.cards(fleet(A, B), {}) == [{"id": "m", "from": "a"}, {"id": "n", "from": "b"}]


def test_an_absent_backend_is_left_out_and_comes_back() -> None:
    catalogue, backends = ModelCatalogue(), fleet(A, B)
    catalogue.learn(A, [{"id": "m"}])
    catalogue.learn(B, [{"id": "n"}])
    away(backends, A)
    assert catalogue.cards(backends, {}) == [{"id": "n"}]
    away(backends, B)
    assert catalogue.cards(backends, {}) is None
    for backend in backends:
        backends.mark_reachable(backend)
    assert catalogue.cards(backends, {}) == [{"id": "m"}, {"id": "n"}]


def test_nothing_told_is_not_the_same_as_nothing_served() -> None:
    catalogue = ModelCatalogue()
    assert catalogue.cards(fleet(A), {}) is None
    assert catalogue.cards(fleet(), {"x": "m"}) is None
    catalogue.learn(A, [])
    assert catalogue.cards(fleet(A), {"x": "m"}) == []


def test_an_alias_is_listed_with_its_models_card_if_the_model_is_there() -> None:
    catalogue = ModelCatalogue()
    catalogue.learn(A, [CARD])
    cards = catalogue.cards(fleet(A), {"gpt-4": "m", "gone": "other"})
    assert cards == [CARD, {**CARD, "id": "gpt-4"}]
    assert CARD["id"] == "m"


def test_an_alias_hides_a_model_of_its_name_as_it_does_for_requests() -> None:
    catalogue = ModelCatalogue()
    catalogue.learn(A, [{"id": "m", "n": 1}, {"id": "n", "n": 2}])
    assert catalogue.cards(fleet(A), {"n": "m"}) == [{"id": "m", "n": 1}, {"id": "n", "n": 1}]


def test_a_backend_that_left_is_forgotten() -> None:
    catalogue = ModelCatalogue()
    for id in (A, B):
        catalogue.learn(id, [{"id": f"m-{id}"}])
    catalogue.keep_only({B})
    assert catalogue.cards(fleet(A, B), {}) == [{"id": "m-b"}]


CARDS = st.lists(st.fixed_dictionaries({"id": st.sampled_from("mnop"), "n": st.integers()}), max_size=3)


@given(st.dictionaries(st.sampled_from([A, B, C]), CARDS), st.sets(st.sampled_from([A, B, C])))
def test_each_name_of_a_present_backend_is_listed_once(
    told: dict[BackendId, list[dict[str, Any]]], absent: set[BackendId]
) -> None:
    catalogue, backends = ModelCatalogue(), fleet(A, B, C)
    for id, cards in told.items():
        catalogue.learn(id, cards)
    for id in absent:
        away(backends, id)
    present = [told[id] for id in (A, B, C) if id not in absent and id in told]
    listed = catalogue.cards(backends, {})
    if not present:
        assert listed is None
        return
    assert listed is not None
    names = [card["id"] for card in listed]
    assert sorted(names) == sorted({card["id"] for cards in present for card in cards})
    assert all(any(card in cards for cards in present) for card in listed)
