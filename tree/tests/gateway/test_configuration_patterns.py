"""Which regular expressions are taken, and that those never take long on the text that suits them worst."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.configuration.patterns import MAX_EXPONENT, MAX_PATTERN_LENGTH, exponent, pattern_fault
from policies.classify import PATTERN_CHARACTERS


@pytest.mark.parametrize(
    "pattern",
    [
        "loan",
        "贷款|信用卡",
        "(?i)credit.{0,20}card",
        "lost.*today",
        "lost.{0,20}card.{0,20}today",
        r"\b(?:visa|amex) (?:ending|number)\b",
        r"(?:\d{1,3}\.){3}\d{1,3}",
        r"(?P<year>20\d\d)-(?P=year)",
        "(?<!un)paid",
        "(a++b)+c",
        "a++.*b",
        "(?:foo|bar)++",
        "[]a+*]+x",
        "(?#a+)b+",
        "a{2}b{3,}c",
        r"\(a\)+",
        "x{y}",
    ],
)
def test_usual_patterns_are_taken(pattern: str) -> None:
    assert pattern_fault(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "is empty or too long"),
        ("a" * (MAX_PATTERN_LENGTH + 1), "is empty or too long"),
        ("(", "is not a regular expression"),
        ("a**", "is not a regular expression"),
        ("[[a]", "is not a regular expression"),
        ("a{99999999999}", "is not a regular expression"),
        ("(?x) a b", "is verbose"),
        ("a*", "fits an empty text"),
        ("a|", "fits an empty text"),
        ("(a+)+b", "could take for ever"),
        ("(a|a)+b", "could take for ever"),
        ("(a?){30}b", "could take for ever"),
        ("(a{1,15}){15}b", "could take for ever"),
        ("a*a*b", "could take for ever"),
        ("a.*b.*c", "could take for ever"),
        (".*a++b", "could take for ever"),
        ("((?:a|b+)c)++.*.*d", "could take for ever"),
        ("((a+)+)++b", "could take for ever"),
        ("(((((((a+)+)+)+)+)+)+)b", "could take for ever"),
        ("(?:a|b.*c.*d)f", "could take for ever"),
    ],
)
def test_a_pattern_that_is_no_use_or_could_stop_the_gateway_is_refused(pattern: str, says: str) -> None:
    fault = pattern_fault(pattern)
    assert fault is not None and says in fault


def test_a_choice_counts_its_worst_branch_and_how_many_there_are() -> None:
    assert exponent("abc") == exponent("a") == pytest.approx(3.01, abs=0.01)
    assert exponent("a|b|c|d|e|f|g|h|i|j") == pytest.approx(exponent("a") + 1)
    assert exponent("x(?:a.*|b.*|c)") == pytest.approx(exponent("x.*") + 0.477, abs=0.01)


PIECES = st.sampled_from(
    ["a", "b", ".", "(", ")", "(?:", "|", "*", "+", "?", "{2}", "{1,3}", "{2,}", "++", "[ab]"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20))
def test_no_pattern_raises_anything(pattern: str) -> None:
    fault = pattern_fault(pattern)
    assert fault is None or "; allowed: " in fault


def test_what_is_taken_ends_on_a_text_that_almost_fits() -> None:
    # No clock: were it exponential, the test would not come to its end at all.
    text = "lost card " * (PATTERN_CHARACTERS // 10)
    compiled = re.compile("lost.*today")
    assert exponent(compiled.pattern) <= MAX_EXPONENT
    assert compiled.search(text, 0, PATTERN_CHARACTERS) is None
