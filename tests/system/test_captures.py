"""What real engines answered, replayed through the gateway: a client must not be able to tell that it is there.

One gateway and one file-driven backend per engine serve all cases. For each capture the recorded request is sent as bytes; the
engine must get it as sent and the client must get the recorded answer: status line, headers in their order, body bytes, end.
Everything that the gateway does differently on purpose is a row of a table below or of `tests.own_answers`, with its reason.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests import captures, client
from tests.backend import Backend, Exchange, Request, Script
from tests.captures import Capture
from tests.framing import Headers
from tests.gateway_process import GatewayProcess
from tests.own_answers import OWN_ANSWERS

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding"}

ADDED_TO_ANSWER = {b"x-request-id", b"x-headrace-route"}

KEPT_FROM_ENGINE = {
    b"x-vllm-priority",  # a client could overtake others by it
}

OF_THE_TEST = {b"x-capture", b"x-piece-bytes"}

ADDED_TO_REQUEST = {
    b"host",  # names the backend, not the gateway
    b"x-request-id",  # made where the client sent none, or one that is unfit for a log
    b"content-length",  # the body is complete when it is sent on, so it needs no chunks
}


FIT_FOR_A_LOG = re.compile(rb"[!-~]{1,128}")

USAGE_PATHS = {"/v1/chat/completions", "/v1/completions"}

CAPTURES = [capture for engine in captures.ENGINES for capture in captures.load(engine)]
PASSED = [capture for capture in CAPTURES if capture.name not in OWN_ANSWERS]
OWN = [capture for capture in CAPTURES if capture.name in OWN_ANSWERS]
STREAMS = [capture for capture in PASSED if capture.is_stream and capture.name != captures.RAW_CAPTURE]


@dataclass(frozen=True, slots=True)
class Stand:
    """One engine's backend and the gateway in front of it."""

    backend: Backend
    gateway: GatewayProcess

    async def exchange(
        self, capture: Capture, *extra: tuple[bytes, bytes]
    ) -> tuple[client.Answer, list[Exchange]]:
        """The answer, and what the engine saw of the request."""
        self.backend.exchanges.clear()
        answer = await client.send(self.gateway.port, capture.request(*extra))
        seen = [one for one in self.backend.exchanges if one.request.value(b"x-capture")]
        return answer, seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stands() -> AsyncIterator[dict[str, Stand]]:
    async with AsyncExitStack() as stack:

        async def stand(engine: str) -> Stand:
            backend = await stack.enter_async_context(_file_driven(engine))
            return Stand(backend, await stack.enter_async_context(GatewayProcess("--backend", backend.url)))

        made = await asyncio.gather(*map(stand, captures.ENGINES))
        yield dict(zip(captures.ENGINES, made, strict=True))


def _file_driven(engine: str) -> Backend:
    by_name = {capture.name: capture for capture in CAPTURES if capture.engine == engine}

    def replay(request: Request) -> Script:
        name = (request.value(b"x-capture") or b"").decode()
        return by_name[name].script(request) if name else Script(status=404, reason=b"Not Found")

    backend = Backend(replay)
    del backend.probes["/version"]  # one of the captures
    backend.probes["/v1/models"] = by_name["get-v1-models"].script(Request(b"", []))
    return backend


def _compared(headers: Headers) -> Headers:
    left_out = HOP_BY_HOP | ADDED_TO_ANSWER
    return [(name.lower(), value) for name, value in headers if name.lower() not in left_out]


def _same_request(capture: Capture, request: Request) -> None:
    assert (request.method, request.target) == (capture.method, capture.target)
    sent = [(name.lower(), value) for name, value in capture.request_headers]
    got = [(name.lower(), value) for name, value in request.headers]
    dropped = KEPT_FROM_ENGINE | ADDED_TO_REQUEST
    assert [pair for pair in got if pair[0] not in ADDED_TO_REQUEST | OF_THE_TEST] == [
        pair for pair in sent if pair[0] not in dropped
    ]
    if not _gets_usage_added(capture):
        assert request.body == capture.request_body
        return
    content = json.loads(capture.request_body)
    content["stream_options"] = {**(content.get("stream_options") or {}), "include_usage": True}
    assert json.loads(request.body) == content


def _one_request_id(capture: Capture, answer: client.Answer, request: Request) -> None:
    """One id at the engine, the client and in between: the client's own where it is fit for a log, else a new one."""
    sent = [value for name, value in capture.request_headers if name.lower() == b"x-request-id"]
    used = request.values(b"x-request-id")
    assert len(used) == 1
    assert answer.head.values(b"x-request-id") == used
    assert FIT_FOR_A_LOG.fullmatch(used[0])
    if not sent and capture.name == "chat-request-id-body":
        sent = [json.loads(capture.request_body)["request_id"].encode()]
    assert not sent or (used == sent) is bool(FIT_FOR_A_LOG.fullmatch(sent[0]))


def _gets_usage_added(capture: Capture) -> bool:
    """Streams whose client did not ask for usage: the gateway does, and keeps the usage-only event to itself."""
    if capture.target not in USAGE_PATHS or capture.method != "POST":
        return False
    content = json.loads(capture.request_body)
    options = content.get("stream_options") or {}
    # Alone, continuous_usage_stats does nothing; beside include_usage it would put a usage into every event.
    wanted = options.get("include_usage") or options.get("continuous_usage_stats")
    return content.get("stream") is True and not wanted


@pytest.mark.parametrize("capture", PASSED, ids=lambda capture: capture.id)
async def test_an_engines_answer_passes_unchanged(stands: dict[str, Stand], capture: Capture) -> None:
    answer, seen = await stands[capture.engine].exchange(capture)
    assert answer.head.start_line == capture.answer.start_line
    assert _compared(answer.headers) == _compared(capture.answer.headers)
    assert answer.body == capture.answer_body
    assert answer.complete
    assert len(seen) == 1
    _same_request(capture, seen[0].request)
    _one_request_id(capture, answer, seen[0].request)


@pytest.mark.parametrize("capture", STREAMS, ids=lambda capture: capture.id)
async def test_a_stream_in_odd_pieces_arrives_unchanged(stands: dict[str, Stand], capture: Capture) -> None:
    """TCP may split events anywhere; pieces of 13 bytes hit every kind of place in them."""
    answer, _ = await stands[capture.engine].exchange(capture, (b"x-piece-bytes", b"13"))
    assert (answer.body, answer.complete) == (capture.answer_body, True)


@pytest.mark.parametrize("capture", OWN, ids=lambda capture: capture.id)
async def test_the_gateway_answers_for_itself(stands: dict[str, Stand], capture: Capture) -> None:
    expected = OWN_ANSWERS[capture.name]
    answer, seen = await stands[capture.engine].exchange(capture)
    expected.holds_for(answer)
    assert seen == []


@pytest.mark.parametrize("engine", captures.ENGINES)
async def test_the_model_cards_are_the_engines(stands: dict[str, Stand], engine: str) -> None:
    capture = next(one for one in OWN if one.engine == engine and one.name == "get-v1-models")
    answer, _ = await stands[engine].exchange(capture)
    assert json.loads(answer.body) == json.loads(capture.answer_body)


async def test_a_client_of_http_1_0_gets_no_chunked_coding(stands: dict[str, Stand]) -> None:
    for capture in (one for one in STREAMS if one.name == "stream-http10"):
        answer, _ = await stands[capture.engine].exchange(capture)
        assert answer.value(b"transfer-encoding") is None
        assert answer.chunk_sizes == []


async def test_every_own_answer_is_used() -> None:
    assert {capture.name for capture in OWN} == set(OWN_ANSWERS)


@pytest.mark.parametrize("engine", captures.ENGINES)
async def test_every_recording_of_an_engine_is_replayed(engine: str) -> None:
    """By this module, and against the engines themselves by `tests.engine.test_differential` and `test_variants`."""
    pages_under_load = {"metrics-fresh", "metrics-after-load", "metrics-busy", "load-busy", "loads-busy"}
    recorded = {file.stem for file in (captures.FIXTURES / engine).rglob("*.http")}
    replayed = [capture.name for capture in CAPTURES if capture.engine == engine]
    assert len(replayed) == len(set(replayed)) > 100
    assert recorded - set(replayed) <= pages_under_load
