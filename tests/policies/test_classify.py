"""The order of what tells a business type, and what each rule finds."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.classifier_training import train
from policies.classify import (
    FINGERPRINT_CHARACTERS,
    KEYWORD_CHARACTERS,
    PATTERN_CHARACTERS,
    BusinessRules,
    BusinessType,
    Source,
)
from tests.policies.labelled_lines import labelled_lines


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def rules(*types: BusinessType) -> BusinessRules:
    return BusinessRules(types, fingerprint)


CARDS = BusinessType("cards", keywords=("信用卡", "Credit Card"), patterns=(r"\bvisa\b",), tenants=("bank",))
LOANS = BusinessType("loans", keywords=("贷款", "loan", "ß"), models=("loan-model",))
WEALTH = BusinessType("wealth", fingerprints=(fingerprint("You sell funds."),), paths=("/v1/embeddings",))
RULES = rules(CARDS, LOANS, WEALTH)

EVERYTHING = {
    "hint": "wealth",
    "tenant_type": "loans",
    "tenant": "bank",
    "model": "loan-model",
    "path": "/v1/embeddings",
    "system": " You sell funds.\n",
    "text": "my credit card and visa",
}


@pytest.mark.parametrize(
    ("without", "name", "source"),
    [
        ([], "wealth", Source.HEADER),
        (["hint"], "loans", Source.TENANT),
        (["hint", "tenant_type"], "cards", Source.TENANT),
        (["hint", "tenant_type", "tenant"], "loans", Source.MODEL),
        (["hint", "tenant_type", "tenant", "model"], "wealth", Source.PATH),
        (["hint", "tenant_type", "tenant", "model", "path"], "wealth", Source.SYSTEM_PROMPT),
        (["hint", "tenant_type", "tenant", "model", "path", "system"], "cards", Source.KEYWORD),
        (list(EVERYTHING), "default", Source.DEFAULT),
    ],
)
def test_the_first_that_speaks_counts(without: list[str], name: str, source: Source) -> None:
    said = {key: value for key, value in EVERYTHING.items() if key not in without}
    assert RULES.business_of(**said) == (name, source)


def test_a_type_that_does_not_exist_is_not_said() -> None:
    assert RULES.business_of(hint="nothing", tenant_type="gone", model="loan-model") == (
        "loans",
        Source.MODEL,
    )
    assert RULES.business_of(hint="default", model="loan-model") == ("default", Source.HEADER)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My CREDIT CARD is lost", "cards"),
        ("credit  card", "default"),
        ("我的信用卡丢了", "cards"),
        ("我想申请LOAN", "loans"),
        ("loaner", "loans"),
        ("a loan for my credit card", "loans"),
        ("a credit card for my loan", "cards"),
        ("a loan for my credit card loan", "loans"),
        ("a credit card, a loan and a credit card", "cards"),
        ("贷款和信用卡", "loans"),
        ("信用卡和贷款", "cards"),
        ("STRAẞE", "loans"),
        ("信 用 卡", "default"),
        ("", "default"),
    ],
)
def test_the_keyword_that_stands_first_counts(text: str, name: str) -> None:
    assert RULES.business_of(text=text)[0] == name


def test_of_keywords_at_one_place_the_longest_counts() -> None:
    made = rules(
        BusinessType("a", keywords=("credit", "信用")), BusinessType("b", keywords=("credit card", "信用卡"))
    )
    for text in ("no credit card", "没有信用卡", "没有credit card"):
        assert made.business_of(text=text) == ("b", Source.KEYWORD)
    assert made.business_of(text="no credit") == ("a", Source.KEYWORD)


def test_patterns_are_asked_after_keywords_and_in_their_order() -> None:
    made = rules(
        BusinessType("a", patterns=("(?i)b+", "c")), BusinessType("b", patterns=("x",), keywords=("k",))
    )
    assert made.business_of(text="xB") == ("a", Source.PATTERN)
    assert made.business_of(text="x") == ("b", Source.PATTERN)
    assert made.business_of(text="xck") == ("b", Source.KEYWORD)


def test_patterns_need_no_keywords_beside_them_in_any_script() -> None:
    made = rules(BusinessType("a", patterns=("卡", "card")))
    assert made.business_of(text="信用卡") == made.business_of(text="credit card") == ("a", Source.PATTERN)
    assert made.business_of(text="贷款") == made.business_of(text="loan") == ("default", Source.DEFAULT)


def test_the_users_text_is_asked_before_the_system_prompt() -> None:
    assert RULES.business_of(system="help with loans", text="VISA visa")[0] == "cards"
    assert RULES.business_of(system="help with loans", text="hello") == ("loans", Source.KEYWORD)


def test_searches_end_at_their_bounds() -> None:
    for filler in ("x", "字"):
        assert RULES.business_of(text=filler * (KEYWORD_CHARACTERS - 4) + "loan")[0] == "loans"
        assert RULES.business_of(text=filler * (KEYWORD_CHARACTERS - 3) + "loan")[0] == "default"
    assert RULES.business_of(text=" " * (PATTERN_CHARACTERS - 4) + "visa")[0] == "cards"
    assert RULES.business_of(text=" " * (PATTERN_CHARACTERS - 3) + "visa")[0] == "default"
    long = "y" * FINGERPRINT_CHARACTERS
    made = rules(BusinessType("a", fingerprints=(fingerprint(long), fingerprint(f"{long}y"))))
    assert made.business_of(system=long) == ("a", Source.SYSTEM_PROMPT)
    assert made.business_of(system=f"{long}y") == ("default", Source.DEFAULT)


def test_rules_say_which_texts_they_need() -> None:
    assert (RULES.needs_text, RULES.needs_system) == (True, True)
    only_prompts = rules(WEALTH)
    assert (only_prompts.needs_text, only_prompts.needs_system) == (False, True)
    neither = rules(BusinessType("a", models=("m",)))
    assert (neither.needs_text, neither.needs_system) == (False, False)
    assert rules().business_of(text="loan") == ("default", Source.DEFAULT)


def test_every_type_can_be_looked_up_by_its_name() -> None:
    made = rules(CARDS, LOANS, WEALTH)
    assert made.types["cards"] is CARDS
    assert set(made.types) == {"default", "cards", "loans", "wealth"}


TRAINED = train(labelled_lines()).classifier
SURE = "Good morning, somebody has used my credit card in another country, please block it"


DOUBTFUL = "I need a card for my house"


def classified_by(min_confidence: float, *types: BusinessType) -> BusinessRules:
    return BusinessRules((*types, *map(BusinessType, TRAINED.types)), fingerprint, TRAINED, min_confidence)


def test_the_classifier_is_asked_last_and_only_believed_where_it_is_sure() -> None:
    said = TRAINED.classify(SURE)
    assert said is not None and said.confidence < 1.0
    made = classified_by(said.confidence, BusinessType("loans", keywords=("loan",)))
    assert made.business_of(text=SURE) == ("credit-card", Source.CLASSIFIER)
    assert made.business_of(text=f"{SURE} loan") == ("loans", Source.KEYWORD)
    assert made.business_of(model="m", text="") == ("default", Source.DEFAULT)
    doubtful = classified_by(said.confidence + 1e-9)
    assert doubtful.business_of(text=SURE) == ("default", Source.DEFAULT)
    assert doubtful.classified("", SURE) is None


def test_four_fifths_are_sure_enough_where_nothing_else_is_said() -> None:
    made = BusinessRules(map(BusinessType, TRAINED.types), fingerprint, TRAINED)
    sure, doubtful = TRAINED.classify(SURE), TRAINED.classify(DOUBTFUL)
    assert sure is not None and doubtful is not None and doubtful.confidence < 0.8 <= sure.confidence
    assert made.classified("", SURE) == sure
    assert made.classified("", DOUBTFUL) is None


def test_the_classifier_reads_the_system_prompt_where_the_users_text_tells_it_nothing() -> None:
    made = classified_by(0.8)
    assert (made.needs_text, made.needs_system) == (True, True)
    for text in ("", "hello"):
        assert made.business_of(system=SURE, text=text) == ("credit-card", Source.CLASSIFIER)
    loan = "THE BANK REJECTED MY MORTGAGE APPLICATION, I need the loan for a house"
    said = made.classified(SURE, loan)
    assert said is not None and said.name == "loan"


def test_without_a_classifier_nothing_is_classified() -> None:
    assert RULES.classified(SURE, SURE) is None


WORDS = st.sampled_from(["ab", "abc", "abb", "b", "bc", "Ca", "贷款", "款", "款b", "é"])
TEXTS = st.text(st.sampled_from("abcC贷款é "), max_size=12) | st.text(st.sampled_from("abC "), max_size=12)


@given(st.lists(WORDS, unique_by=str.lower, min_size=1), TEXTS)
def test_both_ways_to_search_find_the_same_keyword(words: list[str], text: str) -> None:
    made = rules(*(BusinessType(word, keywords=(word,)) for word in words))
    lower = text.lower()
    places = [(lower.find(word.lower()), -len(word), word) for word in words if word.lower() in lower]
    expected = (min(places)[2], Source.KEYWORD) if places else ("default", Source.DEFAULT)
    assert made.business_of(text=text) == expected


@given(
    st.text(), st.text(), st.text(), st.text(), st.text(), st.text(st.characters()), st.text(st.characters())
)
def test_no_request_raises_anything(
    hint: str, tenant: str, kind: str, model: str, path: str, system: str, text: str
) -> None:
    name, source = RULES.business_of(hint, tenant, kind, model, path, system, text)
    assert name in RULES.types and isinstance(source, Source)
