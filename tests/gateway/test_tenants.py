"""Who a client is, by its key; and whose share it may use."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Refused, refusal_answer
from gateway.settings import AnonymousSettings, TenantSettings
from gateway.tenants import KEY_HEADERS, Tenant, Tenants, without_credentials, without_keys
from policies.terms import Lane, Refusal

Headers = list[tuple[bytes, bytes]]


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


BANK = TenantSettings(
    name="bank",
    key_sha256=(digest("k1"), digest("k2").upper()),
    weight=2,
    max_lane=Lane.EMERGENCY,
    default_lane=Lane.BATCH,
    trust_headers=True,
    business_type="cards",
)
SHOP = TenantSettings(name="shop", key_sha256=(digest("k3"),), weight=3)
INNER = TenantSettings(name="inner", max_lane=Lane.STANDARD)
TENANTS = Tenants((BANK, SHOP, INNER), AnonymousSettings(weight=0.5, max_lane=Lane.BATCH))
CLOSED = Tenants((BANK,), AnonymousSettings(allow=False))


def refusal(tenants: Tenants, headers: Headers) -> Refused:
    with pytest.raises(Refused) as caught:
        tenants.of(headers)
    return caught.value


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer k1")],
        [(b"authorization", b"bearer  k2 ")],
        [(b"x-api-key", b"k1")],
        [(b"api-key", b"k2")],
        [(b"x-api-key", b"wrong"), (b"authorization", b"Bearer k1")],
        [(b"api-key", b"wrong"), (b"x-api-key", b"k1")],
        [(b"authorization", b"Basic eDp5"), (b"x-api-key", b"k1")],
        [(b"authorization", b"Bearer "), (b"api-key", b"k1")],
        [(b"authorization", b"Bearer k1"), (b"authorization", b"Bearer wrong")],
    ],
)
def test_a_key_names_its_tenant_wherever_it_stands(headers: Headers) -> None:
    assert TENANTS.of([(b"host", b"h"), *headers]) == Tenant(
        name="bank",
        weight=2,
        max_lane=Lane.EMERGENCY,
        default_lane=Lane.BATCH,
        trust_headers=True,
        business_type="cards",
    )
    assert {name for name, _ in headers} <= KEY_HEADERS


def test_each_key_belongs_to_its_own_tenant() -> None:
    shop = TENANTS.of([(b"authorization", b"Bearer k3")])
    assert (shop.name, shop.weight, shop.max_lane, shop.trust_headers) == ("shop", 3, Lane.INTERACTIVE, False)


def test_digests_that_begin_alike_are_told_apart() -> None:
    stored = digest("k1")
    twin = TenantSettings(name="twin", key_sha256=(stored[:16] + "0" * 48,))
    for tenants in (Tenants((twin, BANK), AnonymousSettings()), Tenants((BANK, twin), AnonymousSettings())):
        assert tenants.of([(b"x-api-key", b"k1")]).name == "bank"
    only_twin = Tenants((twin,), AnonymousSettings())
    assert refusal(only_twin, [(b"x-api-key", b"k1")]).reason is Refusal.UNAUTHORIZED


@pytest.mark.parametrize("key", [b"k4", b"K1", b"none", digest("k1").encode(), b"\xff"])
def test_a_wrong_key_is_refused_in_the_shape_of_openai(key: bytes) -> None:
    for tenants in (TENANTS, CLOSED):
        refused = refusal(tenants, [(b"authorization", b"Bearer " + key)])
        status, headers, body = refusal_answer(refused)
        assert status == 401 and key not in body
        assert dict(headers)[b"x-headrace-reason"] == b"unauthorized"
        assert b'"type":"invalid_request_error"' in body and b'"code":401' in body


@pytest.mark.parametrize(
    "headers",
    [[], [(b"authorization", b"Bearer ")], [(b"authorization", b"Basic eDp5")], [(b"api-key", b"")]],
)
def test_a_client_without_a_key_is_anonymous_where_that_is_allowed(headers: Headers) -> None:
    assert TENANTS.of(headers) == Tenant(weight=0.5, max_lane=Lane.BATCH)
    refused = refusal(CLOSED, headers)
    assert refused.reason is Refusal.UNAUTHORIZED and "Authorization: Bearer" in refused.message


@given(st.lists(st.tuples(st.sampled_from(sorted(KEY_HEADERS)), st.binary())))
def test_without_tenants_whatever_a_client_sends_is_anonymous(
    headers: Headers,
) -> None:
    tenant = Tenants((), AnonymousSettings(trust_headers=True)).of(headers)
    assert tenant == Tenant(trust_headers=True)


@given(st.lists(st.tuples(st.sampled_from(sorted(KEY_HEADERS)), st.binary())))
def test_nothing_but_a_refusal_is_raised(headers: Headers) -> None:
    try:
        assert TENANTS.of(headers).name in TENANTS.names
    except Refused as refused:
        assert refused.reason is Refusal.UNAUTHORIZED


def test_a_trusted_client_may_act_for_another_tenant_and_gains_no_rights_by_it() -> None:
    bank = TENANTS.of([(b"x-api-key", b"k1")])
    inner = TENANTS.acting_for(bank, "inner")
    assert (inner.name, inner.weight, inner.max_lane) == ("inner", 1, Lane.STANDARD)
    assert inner.trust_headers
    proxy = Tenants((BANK,), AnonymousSettings(trust_headers=True, max_lane=Lane.BATCH))
    acting = proxy.acting_for(proxy.of([]), "bank")
    assert (acting.name, acting.weight, acting.business_type) == ("bank", 2, "cards")
    assert acting.max_lane is Lane.BATCH


@pytest.mark.parametrize(("key", "name"), [(b"k1", ""), (b"k1", "bank"), (b"k1", "nobody"), (b"k3", "bank")])
def test_who_names_nobody_new_or_is_not_trusted_stays_itself(key: bytes, name: str) -> None:
    client = TENANTS.of([(b"x-api-key", key)])
    assert TENANTS.acting_for(client, name) is client


def test_the_names_that_can_come_out_are_known() -> None:
    assert TENANTS.names == {"anonymous", "bank", "shop", "inner"}


def test_of_a_query_only_members_that_may_hold_a_key_are_taken_out() -> None:
    assert without_keys("", b"") == ""
    assert without_keys("limit=2&after=%6bey&&x", b"") == "limit=2&after=%6bey&&x"
    query = "key=1&a=b+c&API_KEY=2&%6Bey=3&api-key&apikey=&access_token=t&keys=4"
    assert without_keys(query, b"") == "a=b+c&keys=4"


@pytest.mark.parametrize(
    "written", ["token=gate-key-1", "a=1;key=gate-key-1", "gate%2Dkey-1", "x=Bearer+gate-key-1"]
)
def test_the_key_itself_stays_here_wherever_it_is_written(written: str) -> None:
    assert without_keys(f"a=1&{written}&b=2", b"gate-key-1") == "a=1&b=2"
    value = written.replace("%2D", "-").encode()
    headers = [(b"x-goog-api-key", value), (b"referer", b"http://a/?" + value), (b"accept", b"*/*")]
    assert without_credentials(headers, b"gate-key-1") == [(b"accept", b"*/*")]


def test_a_key_of_a_few_letters_is_not_taken_for_a_part_of_every_word() -> None:
    assert without_keys("a=json&b=1", b"json") == "a=json&b=1"
    headers = [(b"content-type", b"application/json"), (b"cookie", b"a")]
    assert without_credentials(headers, b"json") == headers[:1]
