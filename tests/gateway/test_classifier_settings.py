"""The classifier in the gateway: when it is asked, what counts of what it says, how often it agrees with headers, and a new file at a reload."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.__main__ import main
from gateway.app import Gateway
from gateway.business import business_rules
from gateway.classifier_file import UnusableModel, written
from gateway.configuration import ConfigurationError, Fault, parse, verify
from gateway.degradation_settings import RuleSettings
from gateway.intent_accuracy import IntentAccuracy
from gateway.paths import Kind
from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BusinessTypeSettings,
    ClassifierSettings,
    LogSettings,
    MatchSettings,
    PoolSettings,
    ProbeSettings,
    Settings,
)
from gateway.tagging import Tagging
from policies.metric_catalogue import Metric
from policies.text_classifier import TextClassifier

TYPES = (
    BusinessTypeSettings(name="cards", match=MatchSettings(keywords=("visa",), models=("card-model",))),
    BusinessTypeSettings(name="loans"),
)
LOAN = "I would like to borrow"
UNSURE = "maybe"
"""Said with a confidence between 0.5 and 0.9."""
ROW = (-400, 400)
CLASSIFIER = TextClassifier(
    ("cards", "loans"), 10.0, {"borrow": ROW, "plastic": (400, -400), "maybe": (-20, 20)}
)
TRUSTED = AnonymousSettings(trust_headers=True)
Headers = Sequence[tuple[bytes, bytes]]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.json"
    path.write_bytes(written(CLASSIFIER))
    return str(path)


def write(path: str, classifier: TextClassifier) -> None:
    Path(path).write_bytes(written(classifier))


def settings(model: str, **classifier: float) -> Settings:
    return Settings(
        pools=(PoolSettings(name="p", backends=(BackendSettings(url="http://127.0.0.1:9"),)),),
        business_types=TYPES,
        classifier=ClassifierSettings(file=model, **classifier),
        anonymous=TRUSTED,
        probes=ProbeSettings(interval_seconds=3600),
        log=LogSettings(requests=False),
    )


def chat(user: str, system: str = "") -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}


def business(tagging: Tagging, text: str, headers: Headers = (), model: str = "m", system: str = "") -> str:
    client = tagging.client(headers)
    return tagging.intent(client, Kind.CHAT, "/v1/chat/completions", model, chat(text, system)).business


def named(name: str) -> Headers:
    return [(b"x-headrace-business", name.encode())]


def test_a_classifiers_file_tells_the_type_of_a_text_that_nothing_else_tells(model: str) -> None:
    for file, found in ((model, "loans"), ("", "default")):
        assert business(Tagging(settings(file)), LOAN) == found


def test_the_classifier_comes_last(model: str) -> None:
    tagging = Tagging(settings(model))
    assert business(tagging, LOAN, named("cards")) == "cards"
    assert business(tagging, LOAN, model="card-model") == "cards"
    assert business(tagging, f"{LOAN} with my visa") == "cards"
    assert business(tagging, LOAN, named("unknown")) == "loans"


def test_the_system_prompt_is_classified_where_the_users_text_says_nothing(model: str) -> None:
    tagging = Tagging(settings(model))
    assert business(tagging, "Hello", system="Help who wants to borrow") == "loans"
    assert business(tagging, "plastic", system="Help who wants to borrow") == "cards"
    assert business(tagging, "Hello", system="Be kind") == "default"


def test_below_min_confidence_a_request_is_a_default_one(model: str) -> None:
    for least, found in ((0.0, "loans"), (0.5, "loans"), (0.95, "default"), (1.0, "default")):
        assert business(Tagging(settings(model, min_confidence=least)), UNSURE) == found
    assert business(Tagging(settings(model, min_confidence=0.95)), LOAN) == "loans"


def test_agreement_sample_of_the_requests_that_a_header_names_is_compared(model: str) -> None:
    for share, looked_at in ((0.0, 0), (0.05, 2), (0.25, 10), (1.0, 40)):
        accuracy = IntentAccuracy()
        tagging = Tagging(settings(model, agreement_sample=share), accuracy)
        for _ in range(40):
            assert business(tagging, LOAN, named("loans")) == "loans"
        assert (accuracy.agreed, accuracy.disagreed, accuracy.abstained) == (looked_at, 0, 0)


def test_agreement_disagreement_and_abstention_are_told_apart_and_only_headers_count(model: str) -> None:
    accuracy = IntentAccuracy()
    tagging = Tagging(settings(model, agreement_sample=1, min_confidence=0.95), accuracy)
    for text in (LOAN, "plastic", "plastic", UNSURE, "Hello", ""):
        business(tagging, text, named("loans"))
    business(tagging, LOAN)
    business(tagging, LOAN, model="card-model")
    tagging.intent(tagging.client(named("loans")), Kind.OTHER, "/v1/models", "")
    assert (accuracy.agreed, accuracy.disagreed, accuracy.abstained) == (1, 2, 3)
    untrusted = Tagging(
        replace(settings(model, agreement_sample=1), anonymous=AnonymousSettings()), IntentAccuracy()
    )
    assert business(untrusted, "plastic", named("loans")) == "cards"


def test_without_a_classifier_no_text_is_read_and_nothing_compared() -> None:
    rules = business_rules((BusinessTypeSettings(name="loans"),))
    assert not rules.needs_text and not rules.needs_system and rules.classified(LOAN, LOAN) is None
    accuracy = IntentAccuracy()
    business(Tagging(settings("", agreement_sample=1), accuracy), LOAN, named("loans"))
    assert (accuracy.agreed, accuracy.is_measured, list(accuracy.collect())) == (0, False, [])


# --- configuration ------------------------------------------------------------------------------------------------------------


def only_fault(text: str) -> Fault:
    with pytest.raises(ConfigurationError) as caught:
        parse(
            "pools: [{name: a, backends: [{url: 'http://a'}]}]\nbusiness_types: [{name: cards}]\n" + text,
            "f.yaml",
            {},
        )
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a file here; a file that `headrace train` has written is needed"),
        (b"cards\tsome text\n", "cannot be read as JSON"),
        (b"{}", "is not a classifier"),
        (written(CLASSIFIER), "knows a business type 'loans'; allowed: `default` and the names of"),
    ],
)
def test_a_file_that_is_no_classifier_for_these_types_is_a_fault_with_its_line(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "m.json"
    if content is not None:
        path.write_bytes(content)
    fault = only_fault(f"classifier:\n  min_confidence: 0.7\n  file: {path}\n")
    assert (fault.line, fault.key) == (5, "classifier.file")
    assert fault.message.startswith(says)


@pytest.mark.parametrize("name", ["min_confidence", "agreement_sample"])
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_shares_are_from_0_to_1(name: str, value: float) -> None:
    fault = only_fault(f"classifier: {{{name}: {value}}}\n")
    assert fault.key == f"classifier.{name}" and fault.message.endswith("allowed: 0 to 1")


def test_default_is_a_type_that_a_classifier_may_know(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(written(TextClassifier(("cards", "default"), 10.0, {"borrow": ROW})))
    verify(settings(str(path)), "test")
    assert business(Tagging(settings(str(path))), LOAN) == "default"


def test_while_optional_work_is_dropped_the_classifier_is_not_asked_and_all_other_rules_stay(
    model: str,
) -> None:
    accuracy, drops = IntentAccuracy(), False
    tagging = Tagging(settings(model, agreement_sample=1), accuracy, lambda: drops)
    assert business(tagging, LOAN) == "loans"
    drops = True
    assert business(tagging, LOAN) == "default"
    assert business(tagging, LOAN, model="card-model") == business(tagging, f"{LOAN} with my visa") == "cards"
    assert business(tagging, LOAN, named("loans")) == "loans"
    assert (accuracy.agreed, accuracy.disagreed, accuracy.abstained) == (0, 0, 0)
    drops = False
    assert business(tagging, LOAN, named("loans")) == business(tagging, LOAN) == "loans"
    assert accuracy.agreed == 1


# --- the running gateway ------------------------------------------------------------------------------------------------------


async def test_a_rule_drops_the_optional_work_of_the_running_gateway_and_of_one_that_was_reloaded(
    model: str,
) -> None:
    least = RuleSettings(
        name="least", metric=Metric.SATURATION_RATIO, threshold=9, actions=("no_optional_work",)
    )
    made = Gateway(replace(settings(model), rules=(least,)), lambda raw: None)
    try:
        degradation, now = made.router.degradation, asyncio.get_running_loop().time()
        for is_on, found in ((True, "default"), (False, "loans")):
            degradation.force("least", None, is_on, now + 60, "ann", now)
            assert business(made.proxy.snapshot.tagging, LOAN) == found
            made.configure(made.settings)
            assert business(made.proxy.snapshot.tagging, LOAN) == found
    finally:
        await made.close()


async def test_a_reload_takes_the_new_file_and_one_that_went_bad_changes_nothing(model: str) -> None:
    made = Gateway(settings(model, agreement_sample=1), lambda raw: None)
    try:
        assert business(made.proxy.snapshot.tagging, LOAN) == "loans"
        business(made.proxy.snapshot.tagging, LOAN, named("loans"))
        write(model, TextClassifier(("cards", "loans"), 10.0, {"borrow": (400, -401)}))
        made.configure(settings(model, agreement_sample=1))
        assert business(made.proxy.snapshot.tagging, LOAN) == "cards"
        business(made.proxy.snapshot.tagging, LOAN, named("loans"))
        page = made.telemetry.page().decode()
        for result in ("agreed", "disagreed"):
            assert f'headrace_classifier_agreements_total{{result="{result}"}} 1.0' in page
        os.remove(model)
        before = made.proxy.snapshot, made.settings
        with pytest.raises(UnusableModel):
            made.configure(settings(model))
        assert (made.proxy.snapshot, made.settings) == before
    finally:
        await made.close()


def test_explain_says_what_told_the_type_and_what_the_classifier_makes_of_the_text(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, body = tmp_path / "c.yaml", tmp_path / "r.json"
    config.write_text(
        "pools: [{name: a, backends: [{url: 'http://a'}]}]\n"
        "business_types: [{name: cards, match: {keywords: [visa]}}, {name: loans}]\n"
        f"classifier: {{file: '{model}'}}\n"
    )
    for text, business_name, source, said, confidence in (
        (LOAN, "loans", "classifier", "loans", 1.0),
        ("Borrow for my VISA bill", "cards", "keyword", "loans", 1.0),
        (UNSURE, "default", "default", "loans", 0.5),
    ):
        body.write_bytes(orjson.dumps({"model": "m", **chat(text)}))
        assert main(["explain", str(body), "--config", str(config)]) == 0
        found = orjson.loads(capsys.readouterr().out)
        assert (found["business"], found["business_by"]) == (business_name, source)
        assert found["classifier"]["business"] == said and found["classifier"]["confidence"] >= confidence
    body.write_bytes(orjson.dumps({"model": "m", **chat("Hello")}))
    assert main(["explain", str(body), "--config", str(config)]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["business_by"], found["classifier"]) == ("default", None)
