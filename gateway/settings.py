"""Every setting of the gateway: name, unit, default and range, as frozen records.

`gateway.configuration` fills these records from a YAML file and `gateway.__main__` from the command line; nothing else makes
them. A field's `at_least` / `at_most` bounds are part of the contract: both loaders refuse a value outside of them and name the
key. A setting exists here only if something reads it and a test fails when it is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.admin_settings import AdminSettings
from gateway.affinity_settings import AffinitySettings, PathSettings
from gateway.alert_settings import AlertSettings
from gateway.bounded import bounded
from gateway.breaker_settings import BreakerSettings
from gateway.degradation_settings import DegradationSettings, RuleSettings
from gateway.gpu_settings import GpuSettings
from gateway.monitoring_settings import MonitoringSettings
from gateway.session_settings import SessionSettings
from policies.pool_choice import PoolRole, PoolTag
from policies.terms import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The client's side. `port` 0 asks the system for a free one; `cors_origins` empty switches CORS off, `["*"]` allows any."""

    host: str = "127.0.0.1"
    port: int = bounded(8080, 0, 65535)
    max_body_mb: float = bounded(32, 0.001, 4096)
    max_bodies_mb: float = bounded(1024, 0.001, 1_048_576)
    """Of all requests together, those that wait among them; bodies up to 64 KB are not counted."""
    max_header_kb: float = bounded(64, 1, 1024)
    header_seconds: float = bounded(10, 0.01, 3600)
    """From the first byte of a request (or the connection's opening) to the end of its headers."""
    body_gap_seconds: float = bounded(30, 0.01, 3600)
    """Longest silence inside a request body."""
    stall_seconds: float = bounded(30, 0.01, 3600)
    """How long a client may leave the answer unread before it is cut off."""
    keep_alive_seconds: float = bounded(75, 0, 3600)
    """Idle time of a client's connection; above the 60 s that load balancers keep theirs."""
    drain_seconds: float = bounded(30, 0, 3600)
    """How long running requests may go on after SIGTERM."""
    leave_seconds: float = bounded(0, 0, 3600)
    """How long before that `/readyz` says no while everything is still served, so that a load balancer has time to notice."""
    cors_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """The engine's side, one limit for each way to wait. An answer that keeps coming is bound by `gap_seconds`, not by a total."""

    connect_seconds: float = bounded(2, 0.01, 60)
    first_byte_seconds: float = bounded(600, 0.01, 86400)
    """From the request's last byte to the answer's first data byte; a call that is not streamed spends its whole generation here."""
    gap_seconds: float = bounded(60, 0.01, 86400)
    total_seconds: float = bounded(3600, 0.01, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """Connections to the engines. `idle_seconds` stays below the 5 s after which vLLM and SGLang close an idle connection."""

    max_connections: int = bounded(16384, 1, 65536)
    """Per backend; a request beyond it is answered 503."""
    max_idle_connections: int = bounded(256, 0, 65536)
    idle_seconds: float = bounded(4, 0, 3600)
    resolve_seconds: float = bounded(30, 0, 86400)
    """How long a resolved host name is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Health, models and load of the backends, by GETs on connections of their own."""

    interval_seconds: float = bounded(5, 0.05, 3600)
    timeout_seconds: float = bounded(5, 0.05, 600)
    failures: int = bounded(3, 1, 100)
    """Failed probes in a row that take a backend out; a refused connection takes it out at once."""
    load_seconds: float = bounded(1, 0.05, 3600)
    """Time between two readings of one engine's own load, give or take a quarter; longer in fleets of more than 50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Requests waiting for a slot; only pools with a `window` ever make one wait. A flow is one tenant's requests of one business type."""

    max_waiting: int = bounded(1024, 0, 1_000_000)
    max_waiting_per_flow: int = bounded(256, 1, 1_000_000)
    max_wait_seconds: float = bounded(30, 0, 3600)
    fairness_weight: float | None = bounded(None, 0.05, 0.95)
    """Share of interactive requests in what is served while standard and batch ones wait as well; None follows from the lanes' weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmergencySettings:
    """The emergency lane: slots that it alone may use, and a budget beyond which its requests count as interactive."""

    reserved_per_pool: int = bounded(2, 0, 10_000)
    lending_share: float = bounded(0.5, 0, 1)
    """Of the reserved slots that are unused: how many short requests of other lanes may borrow."""
    budget_share: float = bounded(0.1, 0, 1)
    """Of the fleet's throughput in weighted tokens: what the lane may use over time."""
    burst: int = bounded(20, 1, 1_000_000)
    """Requests that may come at once before the budget counts."""
    preemption: bool = True
    """Whether one that would wait takes the slot of a request of a lower lane, whose client has got nothing yet and which waits again."""
    max_wait_seconds: float | None = bounded(None, 0, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """The standard lane. `weight` divides what is served between lanes that compete; no wait of its own takes the queue's."""

    weight: float = bounded(4, 0.01, 1000)
    max_wait_seconds: float | None = bounded(None, 0, 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveLaneSettings(LaneSettings):
    weight: float = bounded(8, 0.01, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLaneSettings(LaneSettings):
    weight: float = bounded(1, 0.01, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesSettings:
    """Priorities, most urgent first."""

    emergency: EmergencySettings = field(default_factory=EmergencySettings)
    interactive: InteractiveLaneSettings = field(default_factory=InteractiveLaneSettings)
    standard: LaneSettings = field(default_factory=LaneSettings)
    batch: BatchLaneSettings = field(default_factory=BatchLaneSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSettings:
    """Classes of prompts by estimated tokens: short below the first bound, long above the second, medium between."""

    short_below: int = bounded(512, 1, 10_000_000)
    long_above: int = bounded(4096, 1, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """When a request leaves the pool it prefers: never where `spill` is off."""

    spill: bool = True
    spill_ratio: float = bounded(0.5, 0, 1)
    """Spills where the first byte is predicted within this share of the time that the preferred pool would take."""
    hysteresis_seconds: float = bounded(10, 0, 3600)
    """How long a flow that spilled stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Second tries, before the first byte of an answer and always on another backend; `max_retries` 0 switches them off."""

    max_retries: int = bounded(2, 0, 10)
    budget_share: float = bounded(0.2, 0, 1)
    """Of the requests: how many second tries there may be over time, and 2.5 times that at one moment. A refused connection is no try and costs none."""
    budget_floor: int = bounded(3, 0, 10_000)
    """Second tries at once that are always allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingSettings:
    """Refuses at once what would miss its deadline: where the predicted wait exceeds `margin` times the time that is left.

    And where a queue stands, a share of its heaviest flows: see `policies.overload`.
    """

    enabled: bool = True
    margin: float = bounded(1, 0.1, 10)
    standing_share: float = bounded(0.3, 0.01, 1)
    """Of the latency target: a queue in which nobody waits less stands."""
    standing_seconds: float = bounded(0.5, 0.01, 60)
    """For how long it must have, half the latency target at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`requests` writes one JSON line per request to standard output."""

    requests: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """One engine. `url` is http(s)://host[:port][/prefix] or unix:///path/to.sock; `name` defaults to what `url` shows of the host."""

    url: str
    name: str = ""
    api_key: str = ""
    """Sent as `Authorization: Bearer`, in place of what the client sent."""
    ca_file: str = ""
    """PEM file that verifies this backend's certificate, in place of the system's authorities."""
    gpus: int = bounded(1, 1, 10_000)
    """That it runs on."""
    price_per_hour: float | None = bounded(None, 0, 1e9)
    """Of the whole backend, in any currency."""
    gpu: GpuSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """What one backend is sent at a time, in requests and in tokens; what would be more waits here. `{}` is automatic.

    Requests: `max` alone is a window that does not move, with `min` it moves between them from `start` (None: the middle). Without `max` it
    moves by what the engine says of its size: from `max_running_requests` (64 where it does not say), between a quarter and 1.25 times that (else
    4 and 1024); `min` and `start` hold if given. Tokens: estimates; an idle backend takes any request, however long.
    """

    max: int | None = bounded(None, 1, 100_000)
    min: int | None = bounded(None, 1, 100_000)
    start: int | None = bounded(None, 1, 100_000)
    max_tokens: int | None = bounded(None, 1, 1_000_000_000)
    """Prompts and expected answers (90th percentile) of what runs. None is no limit beside `max`; without `max` it is 0.9 of what the engine says its
    KV cache holds. More than it holds is right where most prompts share a long prefix, which is counted for each."""
    max_prefill_tokens: int | None = bounded(None, 1, 1_000_000_000)
    """Prompts of what was sent and has not begun to answer; of an answer that is not streamed until it ends. None is no limit beside `max`; without
    `max` it is what the engine prefills in `prefill_seconds`, as measured, and 2048 at least; answers that are not streamed do not count then."""
    prefill_seconds: float = bounded(1, 0.01, 3600)
    """Without `max` and `max_prefill_tokens`: how long an engine may have to prefill what it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingSettings:
    """Gathers requests of the standard and batch lanes, so that an engine gets `min` to `max` of them together."""

    min: int = bounded(4, 1, 10_000)
    max: int = bounded(24, 1, 10_000)
    gather_ms: float = bounded(100, 0, 10_000)
    """Longest wait for the others of a batch."""
    dynamic_scaling: bool = True
    """Moves the size inside of `min` to `max` with what arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokensSettings:
    """Which prompts a pool takes, by estimated tokens; no `max` takes any."""

    min: int = bounded(0, 0, 10_000_000)
    max: int | None = bounded(None, 1, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Backends that are alike. Without a `window` the engine's own queue takes whatever comes; without `batching` nothing is gathered."""

    name: str
    role: PoolRole = PoolRole.HIGH_BATCH
    window: WindowSettings | None = None
    batching: BatchingSettings | None = None
    engine_priority: bool = False
    """Whether these engines schedule by priority, so that a request's lane is to be written into its body."""
    prompt_tokens: PromptTokensSettings = field(default_factory=PromptTokensSettings)
    tags: tuple[PoolTag, ...] = ()
    """What degradation rules may do with it: `fallback` is preferred, `standby` is used only when they ask for it."""
    backends: tuple[BackendSettings, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSettings:
    """What makes a request one of a business type; any one suffices. `policies.classify` says in which order they count."""

    keywords: tuple[str, ...] = ()
    """Found anywhere in the text, whatever their case."""
    regex: tuple[str, ...] = ()
    """In Python's syntax, found anywhere in the text."""
    system_prompts: tuple[str, ...] = ()
    """Whole texts, but for blanks at their ends."""
    system_prompt_sha256: tuple[str, ...] = ()
    """The same as hexadecimal SHA-256 of the text in UTF-8."""
    models: tuple[str, ...] = ()
    """As clients ask for them, aliases included."""
    paths: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessTypeSettings:
    """A kind of request. No `lane` takes the tenant's; no `pools` allows all, else they stand in order of preference."""

    name: str
    latency_target_ms: float | None = bounded(None, 1, 3_600_000)
    """Until the first byte of the answer; without one a request has no deadline."""
    lane: Lane | None = None
    pools: tuple[str, ...] = ()
    max_output_tokens: int | None = bounded(None, 1, 10_000_000)
    """Longest answer to reckon with where a request names no limit; nothing is cut."""
    match: MatchSettings = field(default_factory=MatchSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierSettings:
    """Tells the business type of a text that nothing else told it of. No `file` is no classifier; `headrace train` writes one."""

    file: str = ""
    min_confidence: float = bounded(0.8, 0, 1)
    """Below it nothing is said, and the request is a default one."""
    agreement_sample: float = bounded(0.01, 0, 1)
    """Of requests whose type a trusted header names: the share that is classified as well, to count how often both agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """A client that is known by its key. The keys themselves are not here, only their SHA-256."""

    name: str
    key_sha256: tuple[str, ...] = ()
    weight: float = bounded(1, 0.01, 1000)
    """Share of what its lane serves, in proportion to the other tenants' that have requests waiting."""
    max_lane: Lane = Lane.INTERACTIVE
    """The most urgent lane it may ask for."""
    default_lane: Lane | None = None
    """Where neither the request nor its business type names one; None is standard."""
    trust_headers: bool = False
    """Whether it may name business type, tenant, pool and backend, and a later deadline."""
    business_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymousSettings:
    """Clients without a key; all are one tenant called anonymous. Where there are no tenants, every client is one of them."""

    allow: bool = True
    weight: float = bounded(1, 0.01, 1000)
    max_lane: Lane = Lane.INTERACTIVE
    trust_headers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One whole configuration. `aliases` maps a name that clients may ask for to the model that the engine knows."""

    pools: tuple[PoolSettings, ...]
    server: ServerSettings = field(default_factory=ServerSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    timeouts: TimeoutSettings = field(default_factory=TimeoutSettings)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    lanes: LanesSettings = field(default_factory=LanesSettings)
    lengths: LengthSettings = field(default_factory=LengthSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    paths: PathSettings = field(default_factory=PathSettings)
    shedding: SheddingSettings = field(default_factory=SheddingSettings)
    retries: RetrySettings = field(default_factory=RetrySettings)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    degradation: DegradationSettings = field(default_factory=DegradationSettings)
    rules: tuple[RuleSettings, ...] = ()
    alerts: AlertSettings = field(default_factory=AlertSettings)
    monitoring: MonitoringSettings = field(default_factory=MonitoringSettings)
    log: LogSettings = field(default_factory=LogSettings)
    business_types: tuple[BusinessTypeSettings, ...] = ()
    classifier: ClassifierSettings = field(default_factory=ClassifierSettings)
    tenants: tuple[TenantSettings, ...] = ()
    anonymous: AnonymousSettings = field(default_factory=AnonymousSettings)
    aliases: dict[str, str] = field(default_factory=dict)


def one_pool(urls: tuple[str, ...], server: ServerSettings) -> Settings:
    """The configuration of `headrace serve --backend URL ...`: every backend in one pool, all else at its default."""
    backends = tuple(BackendSettings(url=url) for url in urls)
    return Settings(pools=(PoolSettings(name="default", backends=backends),), server=server)
