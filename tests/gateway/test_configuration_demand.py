"""Rules for business types, tenants and lengths. Every fault is the only one, and stands at its key."""

from __future__ import annotations

import pytest

from gateway.configuration import ConfigurationError, Fault, parse
from policies.terms import Lane

POOLS = 'pools: [{name: a, backends: [{url: "http://a:1"}]}, {name: b, backends: [{url: "http://b:1"}]}]\n'
KEY, OTHER = "a" * 64, "B" * 64


def only_fault(text: str) -> Fault:
    with pytest.raises(ConfigurationError) as caught:
        parse(POOLS + text, "f.yaml", {"NAME": "s3cret"})
    (fault,) = caught.value.faults
    return fault


def test_business_types_tenants_and_clients_without_a_key_are_read() -> None:
    settings = parse(
        POOLS + "business_types:\n"
        "- name: cards\n"
        "  latency_target_ms: 500\n"
        "  lane: interactive\n"
        "  pools: [b, a]\n"
        "  max_output_tokens: 200\n"
        "  match:\n"
        "    keywords: [信用卡, Credit Card]\n"
        "    regex: ['card (?:ending|number)']\n"
        "    system_prompts: ['You help.']\n"
        f"    system_prompt_sha256: ['{KEY}']\n"
        "    models: [m]\n"
        "    paths: [/v1/embeddings]\n"
        "    tenants: [t]\n"
        "tenants:\n"
        f"- {{name: t, key_sha256: ['{KEY}', '{OTHER}'], weight: 2, max_lane: emergency, default_lane: batch,"
        "   trust_headers: true, business_type: cards}\n"
        "anonymous: {allow: false, max_lane: standard, trust_headers: true, weight: 0.5}\n",
        "f",
        {},
    )
    [cards], [tenant] = settings.business_types, settings.tenants
    assert (cards.name, cards.latency_target_ms, cards.lane) == ("cards", 500, Lane.INTERACTIVE)
    assert (cards.pools, cards.max_output_tokens) == (("b", "a"), 200)
    assert cards.match.keywords == ("信用卡", "Credit Card")
    assert cards.match.regex == ("card (?:ending|number)",)
    assert (cards.match.system_prompts, cards.match.system_prompt_sha256) == (("You help.",), (KEY,))
    assert (cards.match.models, cards.match.paths, cards.match.tenants) == (
        ("m",),
        ("/v1/embeddings",),
        ("t",),
    )
    assert (tenant.key_sha256, tenant.weight, tenant.business_type) == ((KEY, OTHER), 2, "cards")
    assert (tenant.max_lane, tenant.default_lane, tenant.trust_headers) == (Lane.EMERGENCY, Lane.BATCH, True)
    anonymous = settings.anonymous
    assert (anonymous.allow, anonymous.max_lane, anonymous.trust_headers) == (False, Lane.STANDARD, True)
    assert anonymous.weight == 0.5


@pytest.mark.parametrize(
    ("type_", "key", "says"),
    [
        ("name: default", "name", "is the name of what needs no configuration"),
        ("name: 'a b'", "name", "is not a name"),
        ("name: x, lane: urgent", "lane", "allowed: emergency, interactive, standard, batch"),
        ("name: x, latency_target_ms: 0", "latency_target_ms", "allowed: 1 to 3600000"),
        ("name: x, pools: [c]", "pools[0]", "is unknown; allowed: the name of one of `pools`"),
        ("name: x, pools: [a, b, a]", "pools[2]", "stands there twice; keep one"),
        ("name: x, match: {keywords: ['']}", "match.keywords[0]", "is not a keyword"),
        ("name: x, match: {keywords: ['  ']}", "match.keywords[0]", "is not a keyword"),
        (f"name: x, match: {{keywords: ['{'k' * 101}']}}", "match.keywords[0]", "allowed: 1 to 100 char"),
        ("name: x, match: {keywords: [Loan, loan]}", "match.keywords[1]", "is the same as business_types[0]"),
        ("name: x, match: {regex: ['(']}", "match.regex[0]", "is not a regular expression"),
        ("name: x, match: {regex: ['(a+)+b']}", "match.regex[0]", "could take for ever"),
        ("name: x, match: {system_prompts: [' ']}", "match.system_prompts[0]", "is blank"),
        ("name: x, match: {system_prompt_sha256: [ab]}", "match.system_prompt_sha256[0]", "is not a SHA-256"),
        ("name: x, match: {models: ['']}", "match.models[0]", "is not the name of a model"),
        ("name: x, match: {paths: [v1/x]}", "match.paths[0]", "is not the path of a request"),
        ("name: x, match: {paths: ['/v1/x?y']}", "match.paths[0]", "is not the path of a request"),
        (
            "name: x, match: {tenants: [t]}",
            "match.tenants[0]",
            "is unknown; allowed: the name of one of `ten",
        ),
    ],
)
def test_a_fault_in_a_business_type_names_its_key(type_: str, key: str, says: str) -> None:
    fault = only_fault(f"business_types:\n- {{{type_}}}\n")
    assert (fault.line, fault.key) == (3, f"business_types[0].{key}")
    assert says in fault.message


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        ("", "", "name"),
        ("keywords: [Credit]", "keywords: [credit]", "match.keywords[0]"),
        ("system_prompts: [x]", "system_prompts: [' x ']", "match.system_prompts[0]"),
        (f"system_prompt_sha256: [{'c' * 64}]", f"system_prompt_sha256: [{'C' * 64}]", "match.system_prompt_sha256[0]"),
        ("models: [m]", "models: [n, m]", "match.models[1]"),
        ("paths: [/p]", "paths: [/p]", "match.paths[0]"),
    ],
)  # fmt: skip
def test_what_two_business_types_claim_is_a_fault(one: str, other: str, key: str) -> None:
    second = "y" if one else "x"
    fault = only_fault(
        f"business_types:\n- {{name: x, match: {{{one}}}}}\n- {{name: {second}, match: {{{other}}}}}\n"
    )
    assert (fault.line, fault.key) == (4, f"business_types[1].{key}")
    assert "business_types[0]" in fault.message


@pytest.mark.parametrize(
    ("tenant", "key", "says"),
    [
        (f"name: anonymous, key_sha256: ['{KEY}']", "name", "is the name of what needs no configuration"),
        ("name: t, key_sha256: [sk-s3cret]", "key_sha256[0]", "is not a SHA-256; allowed: 64 hexadecimal"),
        (f"name: t, key_sha256: ['{OTHER}', '{OTHER.lower()}']", "key_sha256[1]", "belongs to one tenant"),
        ("name: t", "key_sha256", "no client with `trust_headers` could name this tenant"),
        ("name: t, key_sha256: []", "key_sha256", "at least one is needed"),
        ("name: t, key_sha256: x", "key_sha256", "a list is needed"),
        (f"name: t, key_sha256: ['{KEY}'], business_type: x", "business_type", "is unknown"),
        (f"name: t, key_sha256: ['{KEY}'], default_lane: emergency", "default_lane", "is above `max_lane`"),
        (
            f"name: t, key_sha256: ['{KEY}'], max_lane: x, default_lane: emergency",
            "max_lane",
            "unknown value",
        ),
        (f"name: t, key_sha256: ['{KEY}'], weight: 0", "weight", "allowed: 0.01 to 1000"),
    ],
)
def test_a_fault_in_a_tenant_names_its_key_and_never_quotes_a_digest(
    tenant: str, key: str, says: str
) -> None:
    fault = only_fault(f"tenants:\n- {{{tenant}}}\n")
    assert (fault.line, fault.key) == (3, f"tenants[0].{key}")
    assert says in fault.message
    assert "s3cret" not in fault.message and KEY not in fault.message and OTHER not in fault.message


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        (f"name: t, key_sha256: ['{KEY}']", f"name: t, key_sha256: ['{OTHER}']", "name"),
        (f"name: t, key_sha256: ['{KEY}']", f"name: u, key_sha256: ['{KEY.upper()}']", "key_sha256[0]"),
    ],
)
def test_names_and_keys_belong_to_one_tenant(one: str, other: str, key: str) -> None:
    fault = only_fault(f"tenants:\n- {{{one}}}\n- {{{other}}}\n")
    assert (fault.line, fault.key) == (4, f"tenants[1].{key}")
    assert "tenants[0]" in fault.message


@pytest.mark.parametrize(
    "trusted",
    [
        f"- {{name: u, key_sha256: ['{KEY}'], trust_headers: true}}\n",
        "anonymous: {trust_headers: true}\n",
    ],
)
def test_a_tenant_that_a_trusted_client_can_name_needs_no_key(trusted: str) -> None:
    assert parse(f"{POOLS}tenants:\n- {{name: t}}\n{trusted}", "f", {}).tenants[0].key_sha256 == ()


def test_a_business_type_may_be_that_of_a_tenant_even_where_it_is_the_default() -> None:
    tenants = f"tenants: [{{name: t, key_sha256: ['{KEY}'], business_type: default}}]"
    assert parse(POOLS + tenants, "f", {}).tenants[0].business_type == "default"


def test_a_gateway_that_nobody_may_call_is_a_fault() -> None:
    fault = only_fault("anonymous: {allow: false}")
    assert (fault.line, fault.key) == (2, "anonymous.allow")
    assert "shuts everybody out" in fault.message


def test_an_unknown_name_from_the_environment_is_not_quoted() -> None:
    fault = only_fault("business_types: [{name: x, pools: ['${NAME}']}]")
    assert fault.key == "business_types[0].pools[0]" and "s3cret" not in fault.message


@pytest.mark.parametrize("section", ["{min_ttl_seconds: 10, max_ttl_seconds: 9}", "{max_ttl_seconds: 20}"])
def test_a_shortest_lifetime_above_the_longest_is_named(section: str) -> None:
    fault = only_fault(f"affinity: {section}")
    assert fault.key == "affinity.min_ttl_seconds"
    assert "is above `max_ttl_seconds`" in fault.message


@pytest.mark.parametrize("lengths", ["{short_below: 10, long_above: 9}", "{short_below: 5000}"])
def test_short_prompts_are_shorter_than_long_ones(lengths: str) -> None:
    fault = only_fault(f"lengths: {lengths}")
    assert (fault.line, fault.key) == (2, "lengths.short_below")
    assert "is above `long_above`" in fault.message


def test_a_length_with_a_fault_is_not_compared() -> None:
    assert only_fault("lengths: {short_below: x, long_above: 9}").key == "lengths.short_below"
    assert only_fault("lengths: {long_above: 0}").message.startswith("0 is out of range")
