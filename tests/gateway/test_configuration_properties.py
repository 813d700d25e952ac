"""Properties: what is written loads back equal, and nothing but ConfigurationError ever comes out of a text."""

from __future__ import annotations

import typing
from dataclasses import asdict, fields, replace
from types import NoneType
from typing import Any

import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from gateway.affinity_settings import AffinitySettings
from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from gateway.breaker_settings import BreakerSettings
from gateway.configuration import ConfigurationError, parse
from gateway.degradation_settings import ConditionSettings, RuleSettings
from gateway.gpu_settings import GpuSettings
from gateway.session_settings import SessionSettings
from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BatchingSettings,
    BusinessTypeSettings,
    LanesSettings,
    LengthSettings,
    MatchSettings,
    PoolSettings,
    PromptTokensSettings,
    ServerSettings,
    Settings,
    TenantSettings,
    WindowSettings,
)
from policies.degradation import Operator, scope_of_while
from policies.metric_catalogue import SCOPES, Metric
from policies.pool_choice import PoolRole, PoolTag
from policies.rule_events import Severity
from policies.terms import Lane

NAMES = st.from_regex(r"[A-Za-z0-9/@_.:-]{1,20}", fullmatch=True)
PATHS = st.from_regex(r"(/[A-Za-z0-9._-]{1,8}){0,2}/?", fullmatch=True)
TEXT = st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="\ufeff$"), min_size=1)


def numbers(record: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for each numeric or boolean field of `record`, over its whole range."""
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields(record):
        bounds = field.metadata
        kinds = typing.get_args(hints := typing.get_type_hints(record)[field.name]) or (hints,)
        if bool in kinds:
            strategies[field.name] = st.booleans()
        elif bounds:
            kind = st.integers if int in kinds else st.floats
            number: st.SearchStrategy[Any] = kind(bounds["at_least"], bounds["at_most"])
            strategies[field.name] = number | st.none() if NoneType in kinds else number
    return strategies


def spans(record: type[Any], low: str, high: str) -> st.SearchStrategy[Any]:
    """Records whose `low` is at most their `high`."""

    def ordered(one: Any) -> bool:
        lowest, highest = getattr(one, low), getattr(one, high)
        return lowest is None or highest is None or bool(lowest <= highest)

    return st.builds(record, **numbers(record)).filter(ordered)


@st.composite
def windows(draw: st.DrawFn) -> WindowSettings:
    low, start, high = sorted(draw(st.lists(st.integers(1, 100_000), min_size=3, max_size=3)))
    given, tokens = st.booleans(), st.none() | st.integers(1, 1_000_000_000)
    return WindowSettings(
        max=high if draw(given) else None,
        min=low if draw(given) else None,
        start=start if draw(given) else None,
        max_tokens=draw(tokens),
        max_prefill_tokens=draw(tokens),
        prefill_seconds=draw(st.floats(0.01, 3600)),
    )


DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
LANES = st.sampled_from(Lane)


@st.composite
def business_types(draw: st.DrawFn, pools: list[str], tenants: list[str]) -> tuple[BusinessTypeSettings, ...]:
    made = []
    for number in range(draw(st.integers(0, 2))):
        match = MatchSettings(
            keywords=(f"{draw(TEXT)[:50]}{number}",),
            regex=draw(st.sampled_from([(), ("a+b",), (r"\bloan\b", "贷款{1,3}")])),
            system_prompts=(f"{number}. {draw(TEXT)}",),
            system_prompt_sha256=(f"{number:x}" * 64,),
            models=(f"model-{number}",),
            paths=(f"/v1/{number}",),
            tenants=tuple(tenants[number : number + 1]),
        )
        order = tuple(draw(st.permutations(pools)))
        lane = draw(st.none() | LANES)
        rest = numbers(BusinessTypeSettings)
        strategy = st.builds(
            BusinessTypeSettings,
            name=st.just(f"type-{number}"), lane=st.just(lane), pools=st.just(order), match=st.just(match), **rest,
        )  # fmt: skip
        made.append(draw(strategy))
    return tuple(made)


@st.composite
def all_tenants(draw: st.DrawFn) -> tuple[TenantSettings, ...]:
    digests = draw(st.lists(DIGESTS, max_size=3, unique=True))
    return tuple(
        TenantSettings(
            name=f"tenant-{number}",
            key_sha256=(digest,),
            weight=draw(st.floats(0.01, 1000)),
            max_lane=Lane.EMERGENCY,
            default_lane=draw(st.none() | LANES),
            trust_headers=draw(st.booleans()),
            business_type=draw(st.sampled_from(["", "default"])),
        )
        for number, digest in enumerate(digests)
    )


GPUS = st.none() | st.builds(
    GpuSettings,
    url=st.just("http://exporter.example/metrics"),
    labels=st.lists(st.sampled_from(["gpu=0", "UUID=x=y"]), max_size=2).map(tuple),
    temperature=st.sampled_from(["", "a:b"]),
    **numbers(GpuSettings),
)
BACKENDS = st.builds(BackendSettings, url=st.just("http://a"), gpu=GPUS, **numbers(BackendSettings))


@st.composite
def all_pools(draw: st.DrawFn) -> tuple[PoolSettings, ...]:
    pool_names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    pools, count = [], 0
    for pool_name in pool_names:
        backends = []
        for _ in range(draw(st.integers(1, 3))):
            count += 1
            scheme = draw(st.sampled_from(["http", "https"]))
            port = draw(st.sampled_from(["", ":1", ":65535"]))
            url = f"{scheme}://h{count}.example{port}{draw(PATHS)}"
            url = draw(st.sampled_from([url, f"unix:///run/{count}.sock"]))
            name = draw(st.sampled_from(["", f"backend-{count}"]))
            key = draw(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E)))
            backends.append(replace(draw(BACKENDS), url=url, name=name, api_key=key))
        pools.append(
            PoolSettings(
                name=pool_name,
                role=draw(st.sampled_from(PoolRole)),
                window=draw(st.none() | windows()),
                batching=draw(st.none() | spans(BatchingSettings, "min", "max")),
                prompt_tokens=draw(spans(PromptTokensSettings, "min", "max")),
                tags=draw(st.lists(st.sampled_from(PoolTag), unique=True).map(tuple)),
                backends=tuple(backends),
            )
        )
    return tuple(pools)


THRESHOLDS = st.tuples(st.floats(0, 1), st.floats(0, 1))
"""That every metric may have."""
RULE_METRICS = [(metric, scope) for metric in Metric for scope in sorted(SCOPES[metric])]


RULES = st.builds(
    RuleSettings,
    **numbers(RuleSettings),
    name=st.just("a"),
    metric=st.just(Metric.OPEN_RATIO),
    actions=st.lists(st.sampled_from(["serial", "window_share 0.5", "clamp_max_tokens batch p90"])).map(
        tuple
    ),
    severity=st.sampled_from(Severity),
    description=TEXT,
)
THRESHOLDS = st.tuples(st.floats(0, 1), st.floats(0, 1))
"""That every metric may have."""
RULE_METRICS = [(metric, scope) for metric in Metric for scope in sorted(SCOPES[metric])]


@st.composite
def rules(draw: st.DrawFn) -> tuple[RuleSettings, ...]:
    made = []
    for number in range(draw(st.integers(0, 2))):
        (metric, scope), (also, _) = draw(st.sampled_from(RULE_METRICS)), draw(st.sampled_from(RULE_METRICS))
        operator, rule = draw(st.sampled_from(Operator)), draw(RULES)
        low, high = sorted(draw(THRESHOLDS))
        threshold, clear = (low, high) if operator in (Operator.BELOW, Operator.AT_MOST) else (high, low)
        condition = ConditionSettings(
            metric=also, operator=operator, threshold=threshold, clear_threshold=clear
        )
        is_sound = draw(st.booleans()) and scope_of_while(also, scope) is not None
        made.append(
            replace(
                rule,
                name=f"rule-{number}",
                metric=metric,
                scope=scope,
                operator=operator,
                threshold=threshold,
                clear_threshold=clear if rule.clear_threshold is not None else None,
                only_while=condition if is_sound else None,
                for_seconds=0.0 if rule.samples else rule.for_seconds,
            )
        )
    return tuple(made)


ALERTS = st.builds(
    AlertSettings,
    receivers=st.lists(
        st.builds(
            AlertReceiverSettings,
            url=st.just("https://alerts.example/hook"),
            form=st.sampled_from(AlertForm),
            min_severity=st.sampled_from(Severity),
            **numbers(AlertReceiverSettings),
        ),
        max_size=2,
    ).map(tuple),
    labels=st.dictionaries(st.sampled_from("ab"), TEXT, max_size=2),
    **numbers(AlertSettings),
)


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    hints = typing.get_type_hints(Settings)
    plain = {name: draw(st.builds(kind, **numbers(kind))) for name, kind in hints.items() if name in PLAIN}
    server = draw(
        st.builds(
            ServerSettings,
            host=st.sampled_from(["127.0.0.1", "::", "localhost"]),
            cors_origins=st.lists(st.sampled_from(["*", "https://a.example:8443"]), max_size=2).map(tuple),
            **numbers(ServerSettings),
        )
    )
    aliases = draw(
        st.dictionaries(TEXT.map(lambda name: f"alias {name}"), TEXT.map("model {}".format), max_size=3)
    )
    pools, tenants = draw(all_pools()), draw(all_tenants())
    types = draw(business_types([pool.name for pool in pools], [one.name for one in tenants]))
    anonymous = AnonymousSettings(allow=draw(st.booleans()) or not tenants, max_lane=draw(LANES))
    lengths = draw(spans(LengthSettings, "short_below", "long_above"))
    affinity = draw(spans(AffinitySettings, "min_ttl_seconds", "max_ttl_seconds"))
    lifetimes = spans(SessionSettings, "min_ttl_seconds", "max_ttl_seconds")
    sessions = draw(lifetimes.filter(lambda one: one.max_entry_kb <= one.max_session_kb))
    breaker = draw(spans(BreakerSettings, "open_seconds", "max_open_seconds"))
    lanes = {
        field.name: draw(st.builds(kind, **numbers(kind)))
        for field in fields(LanesSettings)
        if (kind := typing.get_type_hints(LanesSettings)[field.name])
    }
    return Settings(
        pools=pools, tenants=tenants, business_types=types, anonymous=anonymous, lengths=lengths,
        affinity=affinity, breaker=breaker, rules=draw(rules()), alerts=draw(ALERTS), sessions=sessions, lanes=LanesSettings(**lanes), server=server, aliases=aliases, **plain,
    )  # fmt: skip


COMPOSED = {
    "pools",
    "tenants",
    "business_types",
    "anonymous",
    "lengths",
    "affinity",
    "sessions",
    "lanes",
    "server",
    "aliases",
    "breaker",
    "rules",
    "alerts",
}
PLAIN = {field.name for field in fields(Settings)} - COMPOSED


def written(value: Any) -> Any:
    """`value` as plain YAML types, with `${` escaped."""
    if isinstance(value, dict):
        return {key: written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [written(item) for item in value]
    return str(value).replace("${", "$${") if isinstance(value, str) else value


@examples(deadline=None, max_examples=60)
@given(all_settings(), st.booleans())
def test_settings_written_as_yaml_load_back_equal(settings: Settings, flow: bool) -> None:
    document = written(asdict(settings))
    text = yaml.safe_dump(document, allow_unicode=flow, default_flow_style=flow)
    assert parse(text, "f", {}) == settings


PIECES = st.sampled_from(
    [*"{}[]:,-#&*!|>'\"%@`?\n \t$~", "- ", ": ", "\n  ", "${A}", "${", "$${", "---\n", "...", "<<", "\\U", "\\x", "%YAML ",
     "pools", "backends", "url", "http://", "unix:///", "server", "port", "aliases", "window", "max", "name", "ca_file", "tenants", "key_sha256",
     "business_types", "match", "regex", "(", "lanes",
     "9", "1e9", ".nan", "null", "true", "2001-01-01", "\ud800", "\x00", "\u2028"]
)  # fmt: skip


@examples(deadline=None, max_examples=300)
@given(st.lists(PIECES).map("".join) | st.text())
def test_no_text_raises_anything_but_a_configuration_error(text: str) -> None:
    for document in (
        text,
        f"pools: {text}",
        f'aliases: {{a: "{text}"}}',
        f"pools: [{{backends: [{{url: {text}",
        f'business_types: [{{name: a, match: {{regex: ["{text}"]}}}}]',
    ):
        try:
            parse(document, "f", {"A": text})
        except ConfigurationError as error:
            assert len(str(error).splitlines()) == len(error.faults) > 0


JSON_LIKE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@examples(deadline=None, max_examples=60)
@given(st.data())
def test_no_structure_raises_anything_but_a_configuration_error(data: st.DataObject) -> None:
    document = written(asdict(data.draw(all_settings())))
    place = document
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()):
            place[key] = data.draw(JSON_LIKE)
            break
        place = place[key]
    try:
        parse(yaml.safe_dump(document), "f", {})
    except ConfigurationError as error:
        assert all(fault.line > 0 for fault in error.faults)
