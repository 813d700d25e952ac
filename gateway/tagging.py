"""From a request's head and body to what the decision core is told of it (`routing.decision.Intent`).

Decides nothing itself: the tenant by `gateway.tenants`, what the client asks for by `policies.hints`, what of it counts by `policies.trust`, the
business type by `policies.classify`, what a cache may hold of it by `gateway.prompt_prefix`, lane and target by `policies.lanes`, the prompt's size by `gateway.text_size`.
Where a trusted header names the type, `agreement_sample` of the requests are classified as well, evenly spread (`gateway.intent_accuracy`).
While a degradation rule says `no_optional_work` nothing asks the classifier: its rules are those of a configuration without one.
Made once for each configuration. What a head says is worked out once for the equal heads of a connection (`Client`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gateway.business import business_rules
from gateway.intent_accuracy import IntentAccuracy
from gateway.message_texts import message_texts
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix, session_of
from gateway.settings import Settings
from gateway.tenants import Tenant, Tenants
from gateway.text_size import request_text, text_size
from policies.cache_key import NO_PREFIX, CacheKey
from policies.classify import DEFAULT, BusinessType, Source
from policies.hints import FIELDS, Hints, hints
from policies.lanes import lane_of, target_seconds
from policies.lengths import TextSize
from policies.prefix_chain import seed_of
from policies.terms import BackendId, Lane, PoolName
from policies.text_classifier import Classified
from policies.trust import ignored_hints, trusted_hints
from routing.decision import Intent

_PROMPTS = (Kind.CHAT, Kind.COMPLETION, Kind.JSON)
NO_FIELDS: dict[str, Any] = {}


class _Terms(NamedTuple):
    """What holds for all requests of a client and a business type, but for what a body may say."""

    lane: Lane
    target_seconds: float
    max_tokens: int | None
    pools: tuple[PoolName, ...]
    backend: BackendId | None


class Client:
    """What a request's head says; `tagging` made it."""

    __slots__ = ("hints", "ignored", "tagging", "tenant", "terms")

    def __init__(self, tagging: Tagging, tenant: Tenant, hints: Hints, ignored: tuple[str, ...]) -> None:
        self.tagging = tagging
        self.tenant = tenant
        self.hints = hints
        self.ignored = ignored
        """Names of hints that do not count."""
        self.terms: dict[str, _Terms] = {}
        """By business type, once one was seen."""


class Tagging:
    def __init__(
        self,
        settings: Settings,
        accuracy: IntentAccuracy | None = None,
        drops_optional_work: Callable[[], bool] = lambda: False,
    ) -> None:
        """`UnusableModel` where the classifier's file changed after the configuration was checked. `drops_optional_work` is asked where there is one."""
        self.tenants = Tenants(settings.tenants, settings.anonymous)
        self._rules = self._least_rules = business_rules(settings.business_types, settings.classifier)
        if self._rules.classifier is not None:
            self._least_rules = business_rules(settings.business_types)
        self._drops_optional_work = drops_optional_work
        self._aliases = settings.aliases
        self._looks_for_prefixes = settings.affinity.enabled and _paths_matter(settings)
        self._classifies = bool(settings.business_types)
        self._sample = settings.classifier.agreement_sample
        self._sampled = 0.0
        """Beyond 1 the next request is classified as well."""
        self._accuracy = accuracy if self._rules.classifier is not None and self._sample else None
        if self._accuracy is not None:
            self._accuracy.is_measured = True

    def client(self, headers: Sequence[tuple[bytes, bytes]]) -> Client:
        """`Refused` with a 401 where the key is wrong."""
        tenant = self.tenants.of(headers)
        said = hints(headers)
        counted = trusted_hints(said, tenant.trust_headers)
        tenant = self.tenants.acting_for(tenant, counted.tenant)
        return Client(self, tenant, counted, ignored_hints(said, counted, tenant.max_lane))

    @property
    def tells_tenants_apart(self) -> bool:
        return len(self.tenants.names) > 1

    def may_set_priority(self, client: Client) -> bool:
        """Whether the body's `priority` may reach an engine: where clients are told apart, only that of a trusted one."""
        return client.tenant.trust_headers or not self.tells_tenants_apart

    def intent(
        self, client: Client, kind: Kind, path: str, model: str, fields: dict[str, Any] = NO_FIELDS
    ) -> Intent:
        """`fields` is the body's JSON object, empty where there is none; `model` as the client named it."""
        tenant, said = client.tenant, client.hints
        business = self._business(client, path, model, fields) if self._classifies else DEFAULT
        terms = client.terms.get(business.name)
        if terms is None:
            terms = client.terms[business.name] = _terms(client, business)
        lane, target, max_tokens, pools, backend = terms
        if said.lane is None and ("service_tier" in fields or "priority" in fields):
            asked = hints((), {name: fields[name] for name in FIELDS if name in fields}).lane
            lane = lane_of(asked, business.lane, tenant.default_lane, tenant.max_lane)
        limit = (
            fields.get("max_completion_tokens") or fields.get("max_tokens") or fields.get("max_output_tokens")
        )
        if limit is not None and type(limit) is int and limit > 0:
            max_tokens = limit
        size = texts = None
        if fields and kind in _PROMPTS:
            texts = message_texts(kind, fields)
            size = text_size(kind, fields, texts)
        return Intent(
            business.name,
            lane,
            tenant.name,
            tenant.weight,
            target,
            size,
            max_tokens,
            fields.get("stream") is True,
            pools,
            backend,
            said.relegate,
            self._key(client, kind, model, fields, size, texts)
            if fields and self._looks_for_prefixes
            else None,
            said.path,
        )

    def session_of(self, client: Client, fields: dict[str, Any]) -> str:
        """As the head names it, or else the body; "" without one."""
        return client.hints.session or session_of(fields)

    def _key(
        self,
        client: Client,
        kind: Kind,
        model: str,
        fields: dict[str, Any],
        size: TextSize | None,
        texts: list[str | None] | None,
    ) -> CacheKey | None:
        prefix = None
        if size is not None:
            prefix = prompt_prefix(kind, fields, self._aliases.get(model, model), size, texts)
        session = self.session_of(client, fields)
        if session:
            return CacheKey(prefix or NO_PREFIX, seed_of(client.tenant.name, session))
        return None if prefix is None else CacheKey(prefix)

    def _business(self, client: Client, path: str, model: str, fields: dict[str, Any]) -> BusinessType:
        rules, tenant = self._rules, client.tenant
        if rules.classifier is not None and self._drops_optional_work():
            rules = self._least_rules
        system = text = ""
        # Named by the client or its tenant: no need to look into the text.
        is_named = client.hints.business in rules.types or tenant.business_type in rules.types
        if rules.needs_system and not is_named and fields:
            system, text = request_text(fields)
        name, source = rules.business_of(
            client.hints.business, tenant.name, tenant.business_type, model, path, system, text
        )
        if rules.classifier is not None and self._accuracy is not None and source is Source.HEADER and fields:
            self._sampled += self._sample
            if self._sampled >= 1.0:
                self._sampled -= 1.0
                said = rules.classified(*request_text(fields))
                self._accuracy.compared(name, said and said.name)
        return rules.types[name]

    def told_by(
        self, client: Client, path: str, model: str, fields: dict[str, Any]
    ) -> tuple[Source, Classified | None]:
        """What told the business type, and what the classifier says of the text, however sure it is."""
        rules, tenant = self._rules, client.tenant
        system, text = request_text(fields)
        _, source = rules.business_of(
            client.hints.business, tenant.name, tenant.business_type, model, path, system, text
        )
        said = rules.classified(system, text)
        if said is None and rules.classifier is not None:
            said = rules.classifier.classify(text or system)
        return source, said


def _paths_matter(settings: Settings) -> bool:
    """Whether there is a backend to choose, a slot to share out or a path to close; else what a cache holds changes nothing."""
    [first, *others] = settings.pools
    return bool(others) or len(first.backends) > 1 or first.window is not None or not settings.paths.cold_open


def _terms(client: Client, business: BusinessType) -> _Terms:
    tenant, said = client.tenant, client.hints
    return _Terms(
        lane_of(said.lane, business.lane, tenant.default_lane, tenant.max_lane),
        target_seconds(said.deadline_ms, business.target_seconds, tenant.trust_headers),
        business.max_output_tokens,
        (PoolName(said.pool),) if said.pool else business.pools,
        BackendId(said.backend) if said.backend else None,
    )
