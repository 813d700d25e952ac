"""From the configuration's business types to the compiled rules, and what the fingerprint of a system prompt is.

A fingerprint is the SHA-256 of the text in UTF-8 without blanks at its ends, in lower-case hexadecimal: what `printf %s TEXT | sha256sum`
prints, so that an operator can name a prompt without writing it down.
"""

from __future__ import annotations

from hashlib import sha256

from gateway.classifier_file import read_model
from gateway.settings import BusinessTypeSettings, ClassifierSettings
from policies.classify import BusinessRules, BusinessType
from policies.terms import PoolName

_NO_CLASSIFIER = ClassifierSettings()


def fingerprint(text: str) -> str:
    """Of a text without blanks at its ends. Lone surrogates, which JSON can smuggle in, count as they stand."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def business_rules(
    types: tuple[BusinessTypeSettings, ...], classifier: ClassifierSettings = _NO_CLASSIFIER
) -> BusinessRules:
    """`UnusableModel` where the classifier's file is not what it was when the configuration was checked."""
    model = read_model(classifier.file) if classifier.file else None
    return BusinessRules([_type(one) for one in types], fingerprint, model, classifier.min_confidence)


def _type(settings: BusinessTypeSettings) -> BusinessType:
    match = settings.match
    target_ms = settings.latency_target_ms
    digests = [digest.lower() for digest in match.system_prompt_sha256]
    prompts = [fingerprint(text.strip()) for text in match.system_prompts]
    rest = {} if target_ms is None else {"target_seconds": target_ms / 1000}
    return BusinessType(
        settings.name,
        lane=settings.lane,
        pools=tuple(PoolName(pool) for pool in settings.pools),
        max_output_tokens=settings.max_output_tokens,
        keywords=match.keywords,
        patterns=match.regex,
        fingerprints=(*digests, *prompts),
        models=match.models,
        paths=match.paths,
        tenants=match.tenants,
        **rest,
    )
