"""The handshake of `/v1/realtime`: what is refused and how, and what of it the engine sees."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from gateway.realtime import for_engine
from gateway.record import Outcome
from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from policies.terms import Refusal
from tests.gateway.realtime_stage import (
    Engine,
    Stage,
    opened,
    played,
    refusal,
    settings_for,
    settings_of,
    until,
)


async def test_a_backend_that_is_down_is_answered_502_and_then_503_in_json() -> None:
    async with Engine() as engine:
        settings = settings_for(engine)
    async with Stage(settings) as stage:
        status, error, headers = await refusal(stage)
        assert (status, error["code"], error["type"]) == (502, 502, "server_error")
        assert headers["x-headrace-reason"] == "backend_unreachable"
        assert headers["content-type"] == "application/json"
        assert headers["x-request-id"] == (await stage.record()).request_id
        status, error, headers = await refusal(stage)
        assert (status, error["code"], headers["retry-after"]) == (503, 503, "5")
        assert headers["x-headrace-reason"] == "no_backend"
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.REFUSED, 503)
        counted = b'headrace_refusals_total{lane="standard",reason="no_backend"} 1.0'
        assert counted in stage.telemetry.page()


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [("?model=none", 404, "unknown_model"), ("?model=m&model=m%2F2", 400, "bad_request")],
)
async def test_a_model_that_cannot_be_served_is_refused(query: str, status: int, reason: str) -> None:
    async with played() as (engine, stage):
        answered, error, headers = await refusal(stage, f"/v1/realtime{query}")
        assert (answered, headers["x-headrace-reason"], error["param"]) == (status, reason, "model")
        assert engine.handshakes == []


@pytest.mark.parametrize("path", ["/v1/realtime/", "/v1/chat/completions", "/metrics", "/v1/%72ealtime"])
async def test_no_other_path_takes_a_websocket(path: str) -> None:
    async with played() as (engine, stage):
        status, _, headers = await refusal(stage, path)
        assert (status, headers["x-headrace-reason"]) == (404, "unknown_path")
        assert engine.handshakes == []


async def test_an_engines_refusal_of_the_handshake_is_passed_on_as_it_is() -> None:
    async with played() as (engine, stage):
        engine.refusal = HTTPStatus.FORBIDDEN
        with pytest.raises(InvalidStatus) as refused:
            await stage.connect()
        response = refused.value.response
        assert (response.status_code, response.body) == (403, b'{"engine": "says no"}')
        record = await stage.record()
        assert (record.status, record.outcome, record.reason) == (403, Outcome.OK, None)
        assert response.headers["x-request-id"] == record.request_id


async def test_a_full_engine_makes_room_for_another() -> None:
    async with Engine() as full, Engine() as free, Stage(settings_for(full, free)) as stage:
        full.refusal = HTTPStatus.SERVICE_UNAVAILABLE
        for _ in range(2):
            async with await stage.connect():
                await free.socket()
        records = [await stage.record() for _ in range(2)]
        assert len(free.handshakes) == 2
        assert sum(record.attempts for record in records) == 2 + len(full.handshakes) > 2


async def test_what_is_no_websocket_answer_is_answered_502() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.test ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Stage(settings_for(f"http://127.0.0.1:{port}")) as stage:
            status, _, headers = await refusal(stage)
            assert (status, headers["x-headrace-reason"]) == (502, "backend_broke")


async def test_an_engine_that_never_answers_the_handshake_is_answered_504() -> None:
    async with played(timeouts=TimeoutSettings(first_byte_seconds=0.05)) as (engine, stage):
        engine.may_answer.clear()
        status, _, headers = await refusal(stage)
        assert (status, headers["x-headrace-reason"]) == (504, "first_byte_timeout")
        engine.may_answer.set()


async def test_sockets_beyond_max_connections_are_refused() -> None:
    async with opened(upstream=UpstreamSettings(max_connections=1)) as (_, _, stage):
        status, _, headers = await refusal(stage)
        assert (status, headers["x-headrace-reason"]) == (503, "upstream_full")


async def test_the_engine_sees_the_clients_headers_but_hop_by_hop_and_gateway_ones() -> None:
    async with played() as (engine, stage):
        headers = {
            "authorization": "Bearer client",
            "cookie": "a=b",
            "x-request-id": "mine",
            "x-headrace-lane": "batch",
            "x-priority": "1",
            "x-vllm-priority": "0",
            "te": "trailers",
            "openai-beta": "realtime=v1",
        }
        async with await stage.connect(additional_headers=headers, user_agent_header="a client") as client:
            assert client.response is not None
            assert client.response.headers["x-request-id"] == "mine"
            assert "backend=" in client.response.headers["x-headrace-route"]
            assert "level=" not in client.response.headers["x-headrace-route"]
        seen = engine.handshakes[0]
        assert seen.path == "/v1/realtime?model=m"
        names = sorted(name.lower() for name, _ in seen.headers.raw_items())
        assert names == [
            "authorization",
            "connection",
            "cookie",
            "host",
            "openai-beta",
            "sec-websocket-key",
            "sec-websocket-version",
            "upgrade",
            "user-agent",
            "x-request-id",
        ]
        assert seen.headers["authorization"] == "Bearer client"
        assert seen.headers["user-agent"] == "a client"
        assert seen.headers["host"] == engine.url.removeprefix("http://")
        assert seen.headers["x-request-id"] == "mine"


async def test_the_level_of_the_ladder_is_told_with_the_handshake_and_with_its_refusal() -> None:
    async with played() as (_, stage):
        stage.router.degradation.level = 2
        async with await stage.connect() as client:
            assert client.response is not None
            assert client.response.headers["x-headrace-route"].endswith(";level=2")
        status, _, headers = await refusal(stage, "/v1/realtime?model=unknown")
        assert (status, headers["x-headrace-route"]) == (404, "level=2")


async def test_a_backends_key_takes_the_place_of_the_clients_and_a_request_id_is_made() -> None:
    async with Engine() as engine:
        settings = settings_of(BackendSettings(url=engine.url, api_key="of the backend"))
        async with Stage(settings) as stage:
            for headers in ({"authorization": "Bearer client"}, {}):
                async with await stage.connect(additional_headers=headers):
                    pass
                seen = engine.handshakes[-1].headers
                assert seen.get_all("authorization") == ["Bearer of the backend"]
                assert seen["x-request-id"] == (await stage.record()).request_id


async def test_subprotocols_are_offered_to_the_engine_which_chooses() -> None:
    async with (
        Engine(subprotocols=("realtime",)) as engine,
        Stage(settings_for(engine)) as stage,
        await stage.connect(subprotocols=[Subprotocol("other"), Subprotocol("realtime")]) as client,
    ):
        assert engine.handshakes[0].headers["sec-websocket-protocol"] == "other, realtime"
        assert client.subprotocol == "realtime"


async def test_an_alias_is_replaced_in_the_query() -> None:
    async with played(aliases={"gpt": "m/2"}) as (engine, stage):
        async with await stage.connect("/v1/realtime?a=%20&model=gpt&b"):
            pass
        assert engine.handshakes[0].path == "/v1/realtime?a=%20&model=m%2F2&b"
        assert (await stage.record()).model == "gpt"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ("", "", "")),
        ("a=model", ("a=model", "", "")),
        ("model", ("model", "", "")),
        ("m%6Fdel=x+y", ("m%6Fdel=x+y", "x y", "x y")),
        ("model=%61", ("model=b%26c", "a", "b&c")),
    ],
)
def test_the_model_is_read_from_the_query(query: str, expected: tuple[str, str, str]) -> None:
    assert for_engine(query, {"a": "b&c"}) == expected


async def test_under_a_server_without_the_extension_a_refusal_is_a_close() -> None:
    async with played() as (_, stage):
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/elsewhere", "query_string": b"", "headers": []}
        await stage.app(scope, receive, send)
        assert [message["type"] for message in sent] == ["websocket.close"]


async def test_a_message_before_the_handshakes_answer_is_a_bad_request() -> None:
    async with played() as (engine, stage):
        engine.may_answer.clear()
        reader, writer = await stage.begin()
        await until(lambda: bool(engine.handshakes))
        writer.write(b"\x81\x80\x00\x00\x00\x00")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        assert b'"code":400' in await reader.read()
        assert (await stage.record()).reason is Refusal.BAD_REQUEST
        engine.may_answer.set()
