"""The metrics page: every family that is promised is there, each number says what happened, and no client can make it grow."""

from __future__ import annotations

import json
import random
import string
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.client_cause import Cause
from gateway.paths import Kind
from gateway.sessions.turn_metrics import TurnResult
from gateway.settings import BusinessTypeSettings, MatchSettings, ProbeSettings, ServerSettings
from policies.circuit import CanaryOutcome, CircuitState, TripCause
from policies.default_rules import DEFAULT_RULES
from policies.metric_catalogue import Scope
from policies.rule_events import Severity
from policies.terms import CachePath, Lane, LengthClass, Refusal
from policies.trust import CONDITIONAL_HINTS
from routing.backend import Hold, Limiter
from tests import client
from tests.backend import Backend, Ending, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.promised_metrics import promised
from tests.running import CHAT, JSON, Running, running

EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'
USAGE = b'{"prompt_tokens":30,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":16}}'
SELDOM = ProbeSettings(interval_seconds=3600)
SELDOM_SAMPLED = {
    f"headrace_{name}"
    for name in (
        "drain_weighted_tokens_per_second", "backend_window", "spills_total", "gathered_requests", "gather_holds_total", "emergencies_total", "charged_weighted_tokens_total",
        "engine_requests_running", "engine_requests_waiting", "engine_kv_usage_ratio", "backend_reserved_tokens",
        "predicted_cached_tokens_total", "found_cached_tokens_total", "cache_trust_ratio",
        "circuit_transitions_total", "circuit_trips_total", "canaries_total", "backend_share", "backend_held", "pool_panic",
        "rule_active", "rule_value", "rule_transitions_total", "rule_usable", "alerts_total", "gpu_temperature_celsius", "gpu_memory_used_ratio",
        "gpu_utilisation_ratio", "gpu_sample_age_seconds", "cache_hit_ratio", "batching_efficiency_ratio", "batch_idle_ratio", "memory_swing_ratio",
        "intent_accuracy_ratio", "abnormal_ratio", "gpu_seconds_per_request", "useful_throughput_ratio", "breaker_loss_requests", "breaker_loss_tokens", "dialogue_turns_mean", "cost_per_1000_tokens",
        "backend_prefill_tokens", "backend_max_tokens", "backend_max_prefill_tokens", "backend_prefill_tokens_per_second",
    )
}  # fmt: skip
"""Only where the configuration or the engine has something of it."""


async def page(gateway: Running) -> dict[str, Metric]:
    answer = await gateway.get("/metrics")
    assert answer.status == 200
    assert (answer.value(b"content-type") or b"").startswith(b"text/plain; version=")
    families = list(text_string_to_metric_families(answer.body.decode()))
    by_name = {family.name: family for family in families}
    assert len(by_name) == len(families), "one family of each name"
    return by_name


async def test_every_family_of_the_table_exists_and_there_is_no_other() -> None:
    async with (
        Backend() as well,
        Backend(lambda _: json_script({}, status=503)) as full,
        running(well, full, probes=SELDOM) as gateway,
    ):
        well.script = lambda _: json_script({"usage": json.loads(USAGE)})
        while not full.exchanges:
            assert (await gateway.post({})).status == 200
        assert (await gateway.post({"model": "none"})).status == 404
        left = await gateway.begin(b"{")
        left.reset()
        (await gateway.connect()).close()
        well.script = full.script = lambda _: sse_script(EVENT, ending=Ending.CUT)
        assert not (await gateway.post(b'{"stream":true}')).complete
        well.script = full.script = lambda _: Script(before_head=Gate())
        seen = len(well.exchanges) + len(full.exchanges)
        left = await gateway.begin({})
        await until(lambda: len(well.exchanges) + len(full.exchanges) > seen)
        left.close()
        await until(lambda: gateway.metric("headrace_aborts_total") == 1)
        gateway.gateway.telemetry.reloaded(ok=True)

        families = await page(gateway)
        table = list(promised())
        assert len(table) >= 46
        for name, kind, labels in table:
            family = families[name.removesuffix("_total") if kind == "counter" else name]
            assert family.type == kind and family.documentation, name
            assert family.samples or name in SELDOM_SAMPLED, name
            bare = {label for sample in family.samples for label in sample.labels} - {"le"}
            assert bare == labels or not family.samples, name
        named = {name.removesuffix("_total") for name, _, _ in table}
        assert {name for name in families if name.startswith("headrace_")} == named
        assert all(name.startswith(("headrace_", "process_")) for name in families)


METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "PURGE"]
TARGETS = [CHAT, "/v1/", "/", "/v1/models/", "/v1/audio/transcriptions", "/generate", "/admin/", "/metrics/"]


def random_request(draw: random.Random) -> bytes:
    word = "".join(draw.choices(string.ascii_letters + string.digits, k=8))
    target = draw.choice(TARGETS) + draw.choice(
        ["", word, f"?{word}={word}", f"%{draw.randrange(16, 256):x}"]
    )
    named = [
        b"x-business-type",
        b"x-headrace-lane",
        b"x-headrace-tenant",
        b"x-session-id",
        b"x-request-id",
        b"user-agent",
    ]
    headers = [JSON, *[(name, word.encode()) for name in named]]
    body = b'{"model":"%b","stream":%b}' % (
        draw.choice([b"m", b"", word.encode()]),
        draw.choice([b"true", b"false"]),
    )
    return client.request(draw.choice(METHODS), target, headers, body)


async def test_no_client_can_choose_a_label_however_many_paths_models_and_methods_it_invents() -> None:
    draw = random.Random(5)

    def script(_: Request) -> Script:
        return json_script({}, status=draw.choice([200, 204, 304, 400, 404, 418, 429, 500, 503, 599, 799]))

    allowed: dict[str, set[Any]] = {
        "business": {"default"},
        "lane": {"none", *Lane},
        "length": set(LengthClass),
        "waited": {"no", "yes"},
        "tenant": {"anonymous"},
        "pool": {"", "default"},
        "route": {"none", *Kind},
        "status": {"none", "1xx", "2xx", "3xx", "4xx", "5xx"},
        "reason": set(Refusal),
        "cause": {*Cause, *TripCause},
        "kind": {"prompt", "cached", "completion"},
        "state": {"busy", "idle", "active", "inactive", *CircuitState},
        "result": {"ok", "failed", *TurnResult},
        "what": {"kept", "dropped"},
        "path": set(CachePath),
        "by": {"session", "prefix", "rendezvous", "load"},
        "part": {"hot", "cold"},
        "model": {"", "m"},
        "outcome": {"sent", "dropped", "failed", *CanaryOutcome},
        "limiter": set(Limiter),
        "hold": set(Hold),
        "rule": {rule.name for rule in DEFAULT_RULES},
        "scope": set(Scope),
        "severity": set(Severity),
        "hint": set(CONDITIONAL_HINTS),
    }
    async with Backend(script) as one, Backend(script) as two, running(one, two, probes=SELDOM) as gateway:
        backends = {"", *(backend.url.removeprefix("http://") for backend in (one, two))}
        for _ in range(500):
            await gateway.send(random_request(draw))
        families = await page(gateway)
        allowed |= {"backend": backends, "subject": backends | {"default"}}
        for family in families.values():
            for sample in family.samples:
                for label, value in sample.labels.items():
                    assert label == "le" or value in allowed[label], sample
        assert sum(len(family.samples) for family in families.values()) < 500
        assert gateway.metric("headrace_requests_total") > 300


async def test_every_request_is_counted_once_under_what_became_of_it() -> None:
    async with Backend() as backend, running(backend, probes=SELDOM) as gateway:

        def requests(**labels: str) -> float:
            return gateway.metric("headrace_requests_total", **labels)

        for target, route in {
            CHAT: "chat",
            "/v1/completions": "completion",
            "/v1/embeddings": "json",
            "/v1/audio/translations": "form",
        }.items():
            for status, named in ((200, "2xx"), (404, "4xx"), (500, "5xx")):
                backend.script = lambda _, status=status: json_script({}, status=status)  # type: ignore[misc]
                before, of_these = requests(), requests(route=route, status=named)
                assert (await gateway.post({}, target)).status == status
                assert (requests(), requests(route=route, status=named)) == (before + 1, of_these + 1)
        whole = requests()
        assert (await gateway.post(b"{")).status == 400
        assert requests(route="chat", status="4xx", backend="") == 1
        assert gateway.metric("headrace_refusals_total", reason="bad_request") == 1
        assert requests() == whole + 1
        # The gateway's own pages are not requests.
        for target in ("/metrics", "/healthz", "/readyz", "/v1/models", "/admin/state", "/admin/affinity"):
            await gateway.get(target)
        assert requests() == whole + 1
        # Each that reached an engine, and no other, is in the latencies.
        for histogram in ("request_seconds", "first_byte_seconds"):
            assert gateway.metric(f"headrace_{histogram}_count") == 12
            assert gateway.metric(f"headrace_{histogram}_bucket", le="+Inf") == 12
        assert gateway.metric("headrace_overhead_seconds_count") == 12
        assert gateway.metric("headrace_queue_seconds_count") == 0


async def test_what_is_in_flight_and_waiting_is_seen_and_is_gone_afterwards() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend, window=2, probes=SELDOM) as gateway,
    ):
        held = [await gateway.begin({}) for _ in range(5)]
        await until(lambda: gateway.metric("headrace_requests_waiting") == 3)
        assert gateway.metric("headrace_requests_in_flight") == 5
        assert gateway.metric("headrace_backend_in_flight") == 2
        assert gateway.metric("headrace_upstream_connections", state="busy") == 2
        load = await gateway.get("/load")
        assert json.loads(load.body) == {"server_load": 5}
        state = json.loads((await gateway.get("/admin/state")).body)
        assert (state["waiting"], state["in_flight"], state["backends"][0]["in_flight"]) == (3, 5, 2)
        assert state["flows_waiting"] == 1
        [lane] = [lane for lane in state["lanes"] if lane["waiting"]]
        assert lane["lane"] == "standard" and 0 < lane["oldest_wait_seconds"] < 60
        assert state["pools"][0]["reserve_lent"] == state["backends"][0]["absences"] == 0
        assert state["drain_weighted_tokens_per_second"] is None, "nothing has ended yet"
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).status == 200
            connection.close()
        await until(gateway.is_quiet)
        for gauge in ("requests_in_flight", "requests_waiting", "backend_in_flight"):
            assert gateway.metric(f"headrace_{gauge}") == 0
        assert gateway.metric("headrace_upstream_connections", state="busy") == 0
        assert gateway.metric("headrace_upstream_connections", state="idle") >= 1
        assert gateway.metric("headrace_upstream_connections_opened_total") == backend.accepted - 1, (
            "but the probe's"
        )
        assert gateway.metric("headrace_queue_seconds_count") == 3
        assert gateway.metric("headrace_queue_seconds_sum") > 0


async def test_who_waits_with_a_target_is_seen_beside_what_is_refused_of_its_lane() -> None:
    timed = BusinessTypeSettings(
        name="timed", latency_target_ms=600_000, match=MatchSettings(models=("m",)), lane=Lane.INTERACTIVE
    )
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend, window=1, probes=SELDOM, business_types=(timed,)) as gateway,
    ):
        held = [await gateway.begin(body) for body in ({}, {}, {"model": "m"}, {"model": "m"})]
        await until(lambda: gateway.gateway.router.waiting == 3)
        state = json.loads((await gateway.get("/admin/state")).body)
        assert (state["timed_queues"], state["timed_flows"]) == (1, 1)
        assert state["shed_share"] == {"emergency": 0, "interactive": 0, "standard": 0, "batch": 0}
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).status == 200
            connection.close()
        await until(gateway.is_quiet)


async def test_an_abort_is_counted_by_its_cause() -> None:
    flood = b"data: " + b"x" * 60_000 + b"\n\n"

    def script(request: Request) -> Script:
        if request.body == b"{}":
            return Script(before_head=Gate())
        return Script(headers=[(b"content-type", b"text/event-stream")], chunks=[flood] * 400)

    server = ServerSettings(port=0, stall_seconds=0.1, body_gap_seconds=0.1)
    async with Backend(script) as backend, running(backend, server=server, probes=SELDOM) as gateway:
        leaving = await gateway.begin(b"{}")
        await backend.exchange()
        leaving.close()
        stalling = await gateway.connect(receive_buffer_bytes=4096)
        await stalling.send(client.request("POST", CHAT, [JSON], b'{"stream":true}'))
        silent = await gateway.connect()
        await silent.send(client.request("POST", CHAT, [(b"Content-Length", b"9")]) + b"{")
        assert (await silent.read_answer()).status == 408
        for cause in ("client_left", "client_stalled"):
            await until(lambda cause=cause: gateway.metric("headrace_aborts_total", cause=cause) == 1)  # type: ignore[misc]
        assert gateway.metric("headrace_aborts_total") == 2
        assert gateway.metric("headrace_requests_total", status="none") == 1
        # The third could be told, so it was refused.
        assert gateway.metric("headrace_refusals_total", reason="body_timeout") == 1
        assert gateway.metric("headrace_cut_answers_total") == 0
        stalling.close()
        silent.close()


async def test_tokens_are_those_that_engines_report_plain_streamed_asked_for_or_not() -> None:
    def script(request: Request) -> Script:
        if b"stream" in request.body:
            return sse_script(EVENT, b'{"choices":[],"usage":%b}' % USAGE, b"[DONE]")
        return Script(headers=[(b"content-type", b"application/json")], chunks=[b'{"usage":%b}' % USAGE])

    bodies = [b"{}", b'{"stream":true}', b'{"stream":true,"stream_options":{"include_usage":true}}']
    async with Backend(script) as backend, running(backend, probes=SELDOM) as gateway:
        for number, body in enumerate(bodies, 1):
            assert (await gateway.post(body)).complete
            for kind, each in (("prompt", 30), ("completion", 5), ("cached", 16)):
                assert gateway.metric("headrace_tokens_total", kind=kind, pool="default") == each * number
        backend.script = lambda _: json_script({"usage": None})
        assert (await gateway.post({})).status == 200
        assert gateway.metric("headrace_tokens_total") == 51 * 3


async def test_a_retry_is_counted_for_the_backend_that_failed() -> None:
    failed = json_script({}, status=500)
    async with (
        Backend(lambda _: failed) as bad,
        Backend() as good,
        running(bad, good, probes=SELDOM) as gateway,
    ):
        for _ in range(6):
            assert (await gateway.post({})).status == 200
        assert (
            gateway.metric("headrace_retries_total", backend=bad.url.removeprefix("http://"))
            == len(bad.exchanges)
            > 0
        )
        assert gateway.metric("headrace_retries_total") == len(bad.exchanges)
        assert gateway.metric("headrace_requests_total") == 6


async def test_a_backend_that_goes_is_down_on_the_page_and_up_when_it_is_back() -> None:
    async with (
        Backend() as one,
        Backend() as two,
        running(one, two, probes=ProbeSettings(interval_seconds=0.05)) as gateway,
    ):
        name = one.url.removeprefix("http://")
        assert gateway.metric("headrace_backend_up") == 2
        await one.stop()
        await until(lambda: gateway.metric("headrace_backend_up", backend=name, pool="default") == 0)
        assert gateway.metric("headrace_backend_up") == 1
        await one.start()
        await until(lambda: gateway.metric("headrace_backend_up", backend=name) == 1)
