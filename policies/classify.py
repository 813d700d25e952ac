"""The business type of a request.

Decides: one of the configured types, or `default`, and what told so. The first that speaks counts:
1. `header`: what a client named, if it names a known type (the caller passes it only for a trusted client);
2. `tenant`: the type its tenant has, else the one that lists its tenant;
3. `model`, then `path`, as they stand in the request;
4. `system_prompt`: the fingerprint of the whole system prompt, without blanks at its ends;
5. `keyword`, then `pattern`, in the text of the user, then in the system prompt; a keyword is found anywhere, in any case, and of several the
   one that stands first in the text (and is the longest there) counts; of the patterns, in the order of the configuration, the first;
6. `classifier`: what was learned from labelled lines (`policies.text_classifier`), of the user's text, else of the system prompt, where it is
   sure enough; it may say `default` too.
Inputs: texts as they are; of each text the first `KEYWORD_CHARACTERS` are searched for keywords, the first `PATTERN_CHARACTERS` for patterns,
and a system prompt above `FINGERPRINT_CHARACTERS` has no fingerprint.
Cost: `str.find` of each keyword while keyword and text are ASCII (0.3 us per keyword and 1,500 characters); else one alternation over all keywords,
which in Chinese text rarely finds a first character (10 us per 600). One alternation for both would take 5 times as long in English.
Limits: keywords are no words (`loan` is in `loaner`); the classifier sees the last thing the user said, not the dialogue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from policies.terms import Lane, PoolName
from policies.text_classifier import Classified, TextClassifier

KEYWORD_CHARACTERS = 4096
PATTERN_CHARACTERS = 1024
FINGERPRINT_CHARACTERS = 65_536


class Source(StrEnum):
    """What told the business type."""

    __hash__ = str.__hash__  # a key of the metrics at every request; Enum's own is a Python function

    HEADER = "header"
    TENANT = "tenant"
    MODEL = "model"
    PATH = "path"
    SYSTEM_PROMPT = "system_prompt"
    KEYWORD = "keyword"
    PATTERN = "pattern"
    CLASSIFIER = "classifier"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class BusinessType:
    """What a type means, and what makes a request one. `lane` None is the tenant's; `pools` in order of preference, empty for all."""

    name: str
    lane: Lane | None = None
    target_seconds: float = inf
    pools: tuple[PoolName, ...] = ()
    max_output_tokens: int | None = None
    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


DEFAULT = BusinessType("default")


class BusinessRules:
    """All types, compiled; never changed afterwards. Of two types that claim the same the first one has it.

    `fingerprint_of` gives a text's fingerprint as `fingerprints` spells them. `classifier` knows no other types than these; below
    `min_confidence` it says nothing.
    """

    def __init__(
        self,
        types: Iterable[BusinessType],
        fingerprint_of: Callable[[str], str],
        classifier: TextClassifier | None = None,
        min_confidence: float = 0.8,
    ) -> None:
        types = tuple(types)
        self.types: Mapping[str, BusinessType] = {one.name: one for one in (DEFAULT, *types)}
        """By name, `default` among them."""
        self._tenants = _owners(types, lambda one: one.tenants)
        self._models = _owners(types, lambda one: one.models)
        self._paths = _owners(types, lambda one: one.paths)
        self._prompts = _owners(types, lambda one: one.fingerprints)
        self._fingerprint_of = fingerprint_of
        self._keywords = _owners(types, lambda one: [word.lower() for word in one.keywords if word])
        # A keyword stands before its own beginnings, since of two at one place the first one counts.
        words = sorted(self._keywords, reverse=True)
        self._ascii_keywords = [word for word in words if word.isascii()]
        self._any_keyword = re.compile("|".join(map(re.escape, words))) if words else None
        self._patterns = [(re.compile(pattern), one.name) for one in types for pattern in one.patterns]
        self.classifier = classifier
        self._min_confidence = min_confidence
        self._has_text_rules = bool(self._keywords or self._patterns)
        self.needs_text = self._has_text_rules or classifier is not None
        """Whether `business_of` looks at the user's text and, where that does not help, at the system prompt."""
        self.needs_system = bool(self._prompts) or self.needs_text

    def business_of(
        self,
        hint: str = "",
        tenant: str = "",
        tenant_type: str = "",
        model: str = "",
        path: str = "",
        system: str = "",
        text: str = "",
    ) -> tuple[str, Source]:
        """The type's name and its source. `hint` is what a trusted client named, `tenant_type` the type that its tenant is configured to have."""
        if hint and hint in self.types:
            return hint, Source.HEADER
        if tenant_type and tenant_type in self.types:
            return tenant_type, Source.TENANT
        if tenant in self._tenants:
            return self._tenants[tenant], Source.TENANT
        if model in self._models:
            return self._models[model], Source.MODEL
        if path in self._paths:
            return self._paths[path], Source.PATH
        if system and self._prompts and len(system) <= FINGERPRINT_CHARACTERS:
            name = self._prompts.get(self._fingerprint_of(system.strip()))
            if name is not None:
                return name, Source.SYSTEM_PROMPT
        if self._has_text_rules:
            for searched in (text, system):
                if searched and (found := self._of_text(searched)):
                    return found
        if self.classifier is not None and (said := self.classified(system, text)):
            return said.name, Source.CLASSIFIER
        return DEFAULT.name, Source.DEFAULT

    def classified(self, system: str, text: str) -> Classified | None:
        """What the classifier says where it is sure enough, whatever the rules say."""
        if self.classifier is not None:
            for searched in (text, system):
                said = self.classifier.classify(searched)
                if said is not None and said.confidence >= self._min_confidence:
                    return said
        return None

    def _of_text(self, text: str) -> tuple[str, Source] | None:
        keyword = self._keyword_in(text[:KEYWORD_CHARACTERS].lower())
        if keyword is not None:
            return self._keywords[keyword], Source.KEYWORD
        for pattern, name in self._patterns:
            if pattern.search(text, 0, PATTERN_CHARACTERS):
                return name, Source.PATTERN
        return None

    def _keyword_in(self, text: str) -> str | None:
        if not text.isascii():
            found = self._any_keyword.search(text) if self._any_keyword else None
            return found[0] if found else None
        first: str | None = None
        at = len(text)
        for keyword in self._ascii_keywords:
            # No further than where it would still be the first one.
            place = text.find(keyword, 0, at + len(keyword) - 1)
            if place >= 0:
                first, at = keyword, place
        return first


def _owners(
    types: tuple[BusinessType, ...], claims: Callable[[BusinessType], Iterable[str]]
) -> dict[str, str]:
    owners: dict[str, str] = {}
    for one in types:
        for claim in claims(one):
            owners.setdefault(claim, one.name)
    return owners
