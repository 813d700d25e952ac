"""Clamped answers over sockets: whatever API a client speaks, the engine is told the limit in that API's words, and every other byte as it came."""

from __future__ import annotations

import orjson
import pytest

from gateway.degradation_settings import DegradationSettings, RuleSettings
from gateway.settings import AnonymousSettings
from policies.metric_catalogue import Metric
from tests import client
from tests.backend import Backend
from tests.running import JSON, Running, running

RULE = RuleSettings(
    name="short", metric=Metric.SHED_RATIO, threshold=1, actions=("clamp_max_tokens batch 64",)
)
BATCH = (b"x-headrace-lane", b"batch")


async def force_on(gateway: Running) -> None:
    body = orjson.dumps({"force": "on", "seconds": 600, "by": "ann"})
    assert (await gateway.send(client.request("POST", "/admin/rules/short", [JSON], body))).status == 200


@pytest.mark.parametrize(
    ("path", "sent", "gets"),
    [
        (
            "/v1/chat/completions",
            b'{"messages":[],  "n": 2,"max_completion_tokens" : 900 ,"max_output_tokens":1}',
            b'{"messages":[],  "n": 2,"max_completion_tokens" : 64 ,"max_output_tokens":1}',
        ),
        (
            "/v1/chat/completions",
            b'{"messages":[], "stream":true, "stream_options":{"include_usage":true}, "max_output_tokens":9}',
            b'{"messages":[], "stream":true, "stream_options":{"include_usage":true}, "max_output_tokens":9,"max_tokens":64}',
        ),
        ("/v1/completions", b'{"prompt":"a","max_tokens":1e3}', b'{"prompt":"a","max_tokens":64}'),
        ("/v1/responses", b'{"input":"a" , "x":1.0}', b'{"input":"a" , "x":1.0,"max_output_tokens":64}'),
        (
            "/v1/responses",
            b'{"input":"a","max_output_tokens":65}',
            b'{"input":"a","max_output_tokens":64}',
        ),
        ("/v1/messages", b'{"messages":[],"max_tokens":4096}', b'{"messages":[],"max_tokens":64}'),
        ("/v1/messages/count_tokens", b'{"messages":[]}', b'{"messages":[]}'),
        ("/v1/embeddings", b'{"input":"a"}', b'{"input":"a"}'),
        ("/v1/responses/resp_1/cancel", b'{"a":1}', b'{"a":1}'),
    ],
)
async def test_every_api_is_clamped_in_its_own_words_and_what_generates_nothing_is_not(
    path: str, sent: bytes, gets: bytes
) -> None:
    async with (
        Backend() as backend,
        running(
            backend,
            rules=(RULE,),
            degradation=DegradationSettings(default_rules=False),
            anonymous=AnonymousSettings(trust_headers=True),
        ) as gateway,
    ):
        await force_on(gateway)
        await gateway.post(sent, path, [BATCH])
        assert (await backend.exchange()).request.body == gets
