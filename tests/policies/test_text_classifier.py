"""What the classifier learns from labelled lines, and what it says of texts of any kind."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.classifier_training import FOLDS, MIN_LINES, HeldOut, TooFewLines, train
from policies.text_classifier import (
    HEAD_CHARACTERS,
    MAX_TYPES,
    MAX_WEIGHTS,
    TAIL_CHARACTERS,
    WORD_CHARACTERS,
    TextClassifier,
    feature_of,
    features,
    spelled,
)
from tests.policies.labelled_lines import labelled_lines

LINES = labelled_lines()
TRAINING = train(LINES)
CLASSIFIER = TRAINING.classifier
TEXTS = st.text(st.characters()) | st.lists(
    st.sampled_from(["card", "loan", "信用卡", "理财", "\ud800", "İ", "é", "😀", "ก", " ", "\0", "7", "\U00020000"]), max_size=40
).map("".join)  # fmt: skip


def state(classifier: TextClassifier) -> tuple[object, ...]:
    return classifier.types, classifier.scale, list(classifier.weights.items())


def accuracy(held_out: list[HeldOut]) -> float:
    return sum(one.said == one.labelled for one in held_out) / len(held_out)


def test_nine_of_ten_lines_that_were_held_out_get_their_type_in_either_language() -> None:
    held_out = list(TRAINING.held_out)
    assert len(held_out) == len(set(LINES)) == 240
    english = {text for _, text in LINES if text.isascii()}
    in_order = [text for _, text in sorted(LINES)]
    for wanted in (english, set(in_order) - english, set(in_order)):
        some = [one for one, text in zip(held_out, in_order, strict=True) if text in wanted]
        assert len(some) >= 120 and accuracy(some) >= 0.9


def test_what_is_said_with_confidence_is_nearly_always_right() -> None:
    sure = [one for one in TRAINING.held_out if one.confidence >= 0.8]
    assert len(sure) >= 0.8 * len(LINES) and accuracy(sure) >= 0.96


def test_confidence_is_how_often_it_is_right() -> None:
    mean = sum(one.confidence for one in TRAINING.held_out) / len(TRAINING.held_out)
    assert mean == pytest.approx(accuracy(list(TRAINING.held_out)), abs=0.05)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Good morning, somebody has used my credit card in another country, please block it", "credit-card"),
        ("您好，我的信用卡账单上有不认识的消费，请帮忙处理", "credit-card"),
        ("Which fund do you recommend, the risk should be low", "wealth"),
        ("有没有低风险的基金推荐，收益稳一点的", "wealth"),
        ("THE BANK REJECTED MY MORTGAGE APPLICATION", "loan"),
        ("请审批该客户的房贷申请 (income 20000 per month)", "loan"),
    ],
)
def test_new_texts_are_told(text: str, name: str) -> None:
    said = CLASSIFIER.classify(text)
    assert said is not None and said.name == name and said.confidence >= 0.8


OTHER = [
    "Write a poem about leaves in autumn", "Translate this sentence to French please", "What is the capital of Italy?",
    "My laptop does not start", "Summarise the meeting notes for me", "How do I cook rice?", "Explain how a bicycle stays upright",
    "Which train goes to the airport?", "今天天气怎么样", "帮我写一首关于秋天的诗", "请把这句话翻译成英文", "北京到上海的火车几点开",
    "电脑开不了机怎么办", "米饭怎么煮好吃", "请总结一下会议记录", "请问附近有没有医院",
]  # fmt: skip
"""Of no type."""


def test_of_most_texts_about_other_things_nothing_is_said_with_confidence() -> None:
    said = [CLASSIFIER.classify(text) for text in OTHER]
    assert sum(one is None or one.confidence < 0.8 for one in said) >= 0.75 * len(OTHER)


def test_lines_about_other_things_can_be_a_type_too() -> None:
    classifier = train([*LINES, *(("default", text) for text in OTHER)]).classifier
    for text in (
        "Write a letter about the weather",
        "How do I translate this?",
        "请写一篇关于天气的文章",
        "Hello",
    ):
        said = classifier.classify(text)
        assert said is None or said.name == "default" or said.confidence < 0.6


def test_a_text_that_holds_nothing_known_has_no_type() -> None:
    assert [CLASSIFIER.classify(text) for text in ("", "12345 678", "qqq zzz", "!?", "\ud800")] == [None] * 5


@given(TEXTS)
def test_any_text_has_a_type_that_was_trained_with_a_confidence_from_0_to_1_or_none(text: str) -> None:
    said = CLASSIFIER.classify(text)
    assert said is None or (said.name in CLASSIFIER.types and 1 / 3 <= said.confidence <= 1)


@given(TEXTS)
def test_features_can_be_spelled_and_told_apart_again(text: str) -> None:
    found = features(text)
    assert {feature_of(spelled(feature)) for feature in found} == found
    assert len({spelled(feature) for feature in found}) == len(found)


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, len(LINES)))
def test_the_order_of_lines_and_their_repetition_make_no_difference(draw: random.Random, again: int) -> None:
    lines = LINES + LINES[:again]
    draw.shuffle(lines)
    other = train(lines)
    assert state(other.classifier) == state(CLASSIFIER) and other.held_out == TRAINING.held_out


def test_of_a_long_text_only_the_beginning_and_the_end_are_read() -> None:
    middle = " my loan and my mortgage" * 1000
    start, end = "credit card ".ljust(HEAD_CHARACTERS), "statement".rjust(TAIL_CHARACTERS)
    assert features(start + middle + end) == features("credit card statement")
    assert len(features("".join(map(chr, range(0x4E00, 0x9000))))) < 1000


@pytest.mark.parametrize("characters", [300, 500, 600, HEAD_CHARACTERS + TAIL_CHARACTERS])
def test_a_text_that_is_no_longer_than_that_is_read_as_it_is(characters: int) -> None:
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}xy" for number in range(characters // 5)]
    text = " ".join(words).ljust(characters)
    assert len(text) == characters
    assert features(text) == set(words)


def test_a_word_is_the_same_in_any_case_and_beside_any_script() -> None:
    assert features("CARD") == features("card") == {"card"}
    assert {"card", feature_of("卡")} < features("Card 卡")


def test_digits_are_never_learned() -> None:
    assert not any(char.isdigit() for feature in CLASSIFIER.weights for char in spelled(feature))
    assert features("card 4929 1234, 卡号4929") == features("card, 卡号.")


def test_a_type_with_few_lines_does_not_get_what_is_rare() -> None:
    few = [("few", f"unusual subject number {'abcdefghijkl'[i]}{'abcdefghijkl'[i]}") for i in range(12)]
    many = [("many", f"common matter {chr(97 + i % 26) * 3} {chr(97 + i // 26) * 4}") for i in range(500)]
    classifier = train(few + many).classifier
    for text, name in (("common", "many"), ("unusual", "few"), ("aaaa", "many"), ("kkk", "many")):
        said = classifier.classify(text)
        assert said is not None and said.name == name


def test_every_line_is_held_out_once_and_each_fold_has_all_types() -> None:
    assert Counter(one.labelled for one in TRAINING.held_out) == Counter(name for name, _ in LINES)
    assert MIN_LINES >= 2 * FOLDS


def test_a_line_that_is_held_out_is_told_by_what_the_other_folds_teach() -> None:
    names = sorted({name for name, _ in LINES})
    lines = sorted([(names[1], "zz qq"), *(line for line in LINES if line[0] != names[0])])
    folds = [sorted(text for of, text in lines if of == name).index(text) % FOLDS for name, text in lines]
    training = train(lines)
    for held in range(FOLDS):
        others = train([line for line, fold in zip(lines, folds, strict=True) if fold != held]).classifier
        as_confident = TextClassifier(others.types, training.classifier.scale, others.weights)
        for (name, text), fold, one in zip(lines, folds, training.held_out, strict=True):
            if fold == held:
                said = as_confident.classify(text)
                assert one == HeldOut(name, *(("", 0.0) if said is None else said))
    assert HeldOut(names[1], "", 0.0) in training.held_out, "nothing else teaches these words"


def test_what_is_longer_than_a_word_is_not_learned() -> None:
    longest, longer = "w" * WORD_CHARACTERS, "v" * (WORD_CHARACTERS + 1)
    weights = train(
        [*LINES, *((LINES[0][0], f"{longest} {longer} {n * 'm'}") for n in range(10))]
    ).classifier.weights
    assert longest in weights and longer not in weights


def test_too_little_to_learn_from_is_said() -> None:
    cards = [line for line in LINES if line[0] == "credit-card"]
    loans = [line for line in LINES if line[0] == "loan"]
    for lines, says in (
        ([], "there are 0 types"),
        (cards, "there are 1 types"),
        (cards + loans[: MIN_LINES - 1] * 9, "'loan' has 9 different lines; at least 10"),
        ([(f"t{i}", "x") for i in range(MAX_TYPES + 1)], "allowed: 2 to 64"),
    ):
        with pytest.raises(TooFewLines, match=says):
            train(lines)
    train(cards + loans[:MIN_LINES])


def test_a_model_is_bounded_whatever_the_lines_hold() -> None:
    names = [f"type-{number}" for number in range(MAX_TYPES)]
    lines = [
        (name, " ".join(_word(one, line // 2 * 13 + word) for word in range(13)) + " " + _word(line, one))
        for one, name in enumerate(names)
        for line in range(MIN_LINES)
    ]
    assert len(train(lines).classifier.weights) == MAX_WEIGHTS // MAX_TYPES


def _word(one: int, two: int) -> str:
    """Five letters for two numbers below 128."""
    number = one * 128 + two
    return "".join(chr(97 + (number >> shift & 15)) for shift in (16, 12, 8, 4, 0))


def test_a_short_text_without_spaces_between_words_is_known_by_its_units_whatever_they_are() -> None:
    for text in ("字", "信用", "\ud800字"):
        assert isinstance(feature_of(text), int)
    assert [spelled(feature_of(text)) for text in ("字", "信用")] == ["字", "信用"]
    for text in ("信用卡", "a", "ab"):
        assert feature_of(text) == text
