"""From the settings of business types, tenants and anonymous clients to what the decision core is told of a request, and does with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from gateway.errors import Refused
from gateway.paths import Kind
from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BusinessTypeSettings,
    MatchSettings,
    PoolSettings,
    Settings,
    TenantSettings,
    WindowSettings,
)
from gateway.tagging import Tagging
from policies.terms import Lane, Refusal
from routing.decision import Intent, Lease
from tests.gateway.core_stage import leased, queued, router_of, served_of

Headers = Sequence[tuple[bytes, bytes]]
BODY: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You answer tickets."},
        {"role": "user", "content": "My VISA card is lost"},
    ]
}
POOLS = tuple(
    PoolSettings(name=name, window=WindowSettings(max=1), backends=(BackendSettings(url=f"http://{name}"),))
    for name in ("a", "b")
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key(text: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + text.encode()


def intent(
    headers: Headers = (),
    fields: dict[str, Any] = BODY,
    *,
    path: str = "/v1/chat/completions",
    model: str = "m",
    **sections: Any,
) -> Intent:
    """`sections` are fields of `Settings`."""
    tagging = Tagging(replace(Settings(pools=POOLS), **sections))
    return tagging.intent(tagging.client(headers), Kind.CHAT, path, model, fields)


# --- business types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "other"),
    [
        (MatchSettings(keywords=("visa card",)), MatchSettings(keywords=("visa-card",))),
        (MatchSettings(regex=(r"V\w+A",)), MatchSettings(regex=(r"V\d+A",))),
        (
            MatchSettings(system_prompts=(" You answer tickets.\n",)),
            MatchSettings(system_prompts=("You answer",)),
        ),
        (
            MatchSettings(system_prompt_sha256=(digest("You answer tickets."),)),
            MatchSettings(system_prompt_sha256=(digest("You answer"),)),
        ),
        (MatchSettings(models=("m",)), MatchSettings(models=("n",))),
        (MatchSettings(paths=("/v1/chat/completions",)), MatchSettings(paths=("/v1/completions",))),
        (MatchSettings(tenants=("anonymous",)), MatchSettings(tenants=("bank",))),
    ],
)
def test_each_kind_of_match_makes_a_request_one_of_its_business_type(
    match: MatchSettings, other: MatchSettings
) -> None:
    for rules, name in ((match, "cards"), (other, "default")):
        assert intent(business_types=(BusinessTypeSettings(name="cards", match=rules),)).business == name


MATCHING = MatchSettings(models=("m",))


def of_type(**fields: Any) -> Intent:
    return intent(business_types=(BusinessTypeSettings(**{"name": "cards", "match": MATCHING, **fields}),))


def test_the_name_of_a_business_type_is_what_a_request_is_known_by_and_a_trusted_client_asks_for() -> None:
    assert [of_type(name=name).business for name in ("cards", "loans")] == ["cards", "loans"]
    types = (BusinessTypeSettings(name="cards"), BusinessTypeSettings(name="loans"))
    for name in ("cards", "loans", "default"):
        asked = intent(
            [(b"x-headrace-business", name.encode())],
            business_types=types,
            anonymous=AnonymousSettings(trust_headers=True),
        )
        assert asked.business == name


def test_latency_target_ms_is_when_the_core_gives_a_request_up() -> None:
    for target_ms, seconds in ((250, 0.25), (4000, 4.0), (None, inf)):
        asked = of_type(latency_target_ms=target_ms)
        assert asked.target_seconds == seconds
        router = router_of(Settings(pools=POOLS[:1]))
        running = leased(router)
        queued(router, 0.0, asked)
        router.finish(running, 1.0)
        [(_, grant)] = router.pump(1.0)
        assert grant is Refusal.DEADLINE if seconds < 1 else isinstance(grant, Lease)


def test_the_lane_of_a_business_type_is_its_requests_and_without_one_it_is_the_tenants() -> None:
    assert [of_type(lane=lane).lane for lane in (Lane.INTERACTIVE, Lane.BATCH, None)] == [
        Lane.INTERACTIVE,
        Lane.BATCH,
        Lane.STANDARD,
    ]
    tenant = TenantSettings(name="t", key_sha256=(digest("k"),), default_lane=Lane.BATCH)
    for lane, found in ((Lane.INTERACTIVE, Lane.INTERACTIVE), (None, Lane.BATCH)):
        types = (BusinessTypeSettings(name="cards", lane=lane, match=MATCHING),)
        assert intent([key("k")], business_types=types, tenants=(tenant,)).lane is found


def test_the_pools_of_a_business_type_are_used_in_their_order_and_no_other() -> None:
    for pools, places in (((), ["a", "b"]), (("b", "a"), ["b", "a"]), (("b",), ["b"]), (("a",), ["a"])):
        asked = of_type(pools=pools, lane=Lane.INTERACTIVE)
        router = router_of(Settings(pools=POOLS))
        assert [leased(router, 0.0, asked).backend.pool for _ in places] == places
        queued(router, 0.0, asked)
        assert router.pump(0.0) == []


def test_max_output_tokens_are_reckoned_with_where_a_request_names_no_limit() -> None:
    router = router_of(Settings(pools=(replace(POOLS[0], window=None),)))
    costs = [leased(router, 0.0, of_type(max_output_tokens=most)).tag.cost for most in (1, 100, None)]
    assert costs == sorted(set(costs)), "a longer answer costs more"
    types = (BusinessTypeSettings(name="cards", max_output_tokens=100, match=MATCHING),)
    for named, found in ((None, 100), (7, 7), (700, 700)):
        assert intent((), {**BODY, "max_tokens": named}, business_types=types).max_tokens == found


# --- tenants ------------------------------------------------------------------------------------------------------------------


def bank(**fields: Any) -> TenantSettings:
    return TenantSettings(**{"name": "bank", "key_sha256": (digest("k1"),), **fields})


def of_bank(headers: Headers = (), fields: dict[str, Any] = BODY, **settings: Any) -> Intent:
    """What is said of a request of a tenant with these settings."""
    types = (BusinessTypeSettings(name="cards"), BusinessTypeSettings(name="loans"))
    return intent([key("k1"), *headers], fields, tenants=(bank(**settings),), business_types=types)


def test_key_sha256_says_which_keys_are_a_tenants_and_any_other_is_refused() -> None:
    for keys in ((), ("k1",), ("k1", "k2"), ("k2",)):
        tenants = (bank(key_sha256=tuple(map(digest, keys))),)
        for sent in ("k1", "k2"):
            if sent in keys:
                assert intent([key(sent)], tenants=tenants).tenant == "bank"
            else:
                with pytest.raises(Refused) as caught:
                    intent([key(sent)], tenants=tenants)
                assert caught.value.reason is Refusal.UNAUTHORIZED


def test_the_name_of_a_tenant_is_whose_share_its_requests_use() -> None:
    assert [of_bank(name=name).tenant for name in ("bank", "shop")] == ["bank", "shop"]


@pytest.mark.parametrize(
    ("weight", "anonymous_weight", "shares"), [(3, 1, (90, 30)), (1, 3, (30, 90)), (2, 2, (60, 60))]
)
def test_tenants_and_anonymous_clients_share_a_lane_by_their_weights(
    weight: float, anonymous_weight: float, shares: tuple[int, int]
) -> None:
    settings = Settings(
        pools=POOLS[:1], tenants=(bank(weight=weight),), anonymous=AnonymousSettings(weight=anonymous_weight)
    )
    tagging = Tagging(settings)

    def said(*headers: tuple[bytes, bytes]) -> Intent:
        return tagging.intent(tagging.client(headers), Kind.OTHER, "/", "m")

    served = served_of(router_of(settings), {"bank": said(key("k1")), "anonymous": said()}, 120)
    assert [served["bank"], served["anonymous"]] == [pytest.approx(share, abs=3) for share in shares]


EMERGENCY = [(b"x-headrace-lane", b"emergency")]


@pytest.mark.parametrize("ceiling", list(Lane))
def test_max_lane_is_the_most_urgent_lane_that_a_tenant_or_an_anonymous_client_gets(ceiling: Lane) -> None:
    assert of_bank(EMERGENCY, max_lane=ceiling).lane is ceiling
    assert intent(EMERGENCY, anonymous=AnonymousSettings(max_lane=ceiling)).lane is ceiling


def test_default_lane_is_that_of_requests_that_name_none() -> None:
    for default, lane in (
        (None, Lane.STANDARD),
        (Lane.BATCH, Lane.BATCH),
        (Lane.INTERACTIVE, Lane.INTERACTIVE),
    ):
        assert of_bank(default_lane=default).lane is lane
        assert of_bank([(b"x-headrace-lane", b"standard")], default_lane=default).lane is Lane.STANDARD


CLAIMS = [
    (b"x-headrace-business", b"loans"),
    (b"x-headrace-tenant", b"shop"),
    (b"x-headrace-pool", b"b"),
    (b"x-headrace-backend", b"b"),
    (b"x-headrace-deadline-ms", b"9000"),
]


@pytest.mark.parametrize("of_whom", ["bank", "anonymous"])
def test_what_a_client_claims_counts_only_where_trust_headers_is_on(of_whom: str) -> None:
    headers = [*([key("k1")] if of_whom == "bank" else []), *CLAIMS]
    types = (
        BusinessTypeSettings(name="cards", latency_target_ms=500, match=MATCHING),
        BusinessTypeSettings(name="loans", latency_target_ms=500),
    )
    found = []
    for is_trusted in (True, False):
        trusted = {of_whom: is_trusted}
        said = intent(
            headers,
            business_types=types,
            tenants=(
                bank(trust_headers=trusted.get("bank", False)),
                TenantSettings(name="shop"),
            ),
            anonymous=AnonymousSettings(trust_headers=trusted.get("anonymous", False)),
        )
        found.append((said.business, said.tenant, said.pools, said.backend, said.target_seconds))
    assert found == [("loans", "shop", ("b",), "b", 9.0), ("cards", of_whom, (), None, 0.5)]


def test_the_business_type_of_a_tenant_is_that_of_all_its_requests() -> None:
    assert [of_bank(business_type=name).business for name in ("cards", "loans", "")] == [
        "cards",
        "loans",
        "default",
    ]


def test_clients_without_a_key_may_call_where_anonymous_is_allowed() -> None:
    assert intent(tenants=(bank(),), anonymous=AnonymousSettings(allow=True)).tenant == "anonymous"
    with pytest.raises(Refused) as caught:
        intent(tenants=(bank(),), anonymous=AnonymousSettings(allow=False))
    assert caught.value.reason is Refusal.UNAUTHORIZED
