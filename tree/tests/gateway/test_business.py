"""From the configuration's business types to the rules."""

from __future__ import annotations

import hashlib
from math import inf

from gateway.business import business_rules, fingerprint
from gateway.settings import BusinessTypeSettings, MatchSettings
from policies.classify import Source
from policies.terms import Lane, PoolName


def test_a_fingerprint_is_what_sha256sum_prints_of_the_text_in_utf_8() -> None:
    assert fingerprint("你好") == hashlib.sha256("你好".encode()).hexdigest()
    assert len(fingerprint("\ud800")) == 64


def test_every_setting_of_a_business_type_reaches_the_rules() -> None:
    full = BusinessTypeSettings(
        name="cards",
        latency_target_ms=250,
        lane=Lane.INTERACTIVE,
        pools=("b", "a"),
        max_output_tokens=9,
        match=MatchSettings(
            keywords=("card",),
            regex=("v.sa",),
            system_prompts=(" You help.\n",),
            system_prompt_sha256=(fingerprint("You sell.").upper(),),
            models=("m",),
            paths=("/p",),
            tenants=("t",),
        ),
    )
    rules = business_rules((full, BusinessTypeSettings(name="other")))
    cards, other = rules.types["cards"], rules.types["other"]
    assert (cards.lane, cards.target_seconds, cards.max_output_tokens) == (Lane.INTERACTIVE, 0.25, 9)
    assert cards.pools == (PoolName("b"), PoolName("a"))
    assert (other.lane, other.target_seconds, other.pools, other.max_output_tokens) == (None, inf, (), None)
    for said, source in (
        ({"text": "a card"}, Source.KEYWORD),
        ({"text": "visa"}, Source.PATTERN),
        ({"system": "You help."}, Source.SYSTEM_PROMPT),
        ({"system": "\tYou sell. "}, Source.SYSTEM_PROMPT),
        ({"model": "m"}, Source.MODEL),
        ({"path": "/p"}, Source.PATH),
        ({"tenant": "t"}, Source.TENANT),
    ):
        assert rules.business_of(**said) == ("cards", source)
