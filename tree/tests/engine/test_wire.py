"""The bytes of the gateway's answers are the engine's, below what a client library shows."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.engine.engines import ENGINES, MODEL, Engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120, func_only=True),
    pytest.mark.parametrize("engine", ENGINES, indirect=True),
]

# Key order and escapes are the client's: `\u4fe1` stays an escape, the big integer and the double key are legal.
PLAIN = (
    b'{ "messages": [{"role": "user", "content": "\\u4fe1\xe7\x94\xa8 caf\xc3\xa9"}],'
    b' "max_tokens": 9, "max_tokens": 12, "x": 12345678901234567890123, "temperature": 0, "model": "tiny"}'
)
HEADERS = {"content-type": "application/json"}
RANDOM_PARTS = re.compile(rb'"id":"[^"]*"|"created":\d+')

ASKED = {"model": MODEL, "temperature": 0, "max_tokens": 48}
CHAT = ASKED | {"messages": [{"role": "user", "content": "Tell me all of it."}], "stream": True}
STREAMS = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat-with-usage": ("/v1/chat/completions", CHAT | {"stream_options": {"include_usage": True}}),
    "chat-with-logprobs": ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 1}),
    "text": ("/v1/completions", ASKED | {"prompt": "All of it is", "stream": True}),
}


def test_a_plain_answer_is_the_engines_byte_for_byte_but_for_ids_and_times(
    engine: Engine, gateway: str
) -> None:
    expected, answer = (
        RANDOM_PARTS.sub(b"", _post(url, "/v1/chat/completions", PLAIN).content)
        for url in _warmed(engine.url, gateway, "/v1/chat/completions", PLAIN)
    )

    assert b'"content":' in expected
    assert answer == expected


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_has_the_engines_events_in_their_order(engine: Engine, gateway: str, stream: str) -> None:
    path, asked = STREAMS[stream]
    body = json.dumps(asked).encode()
    expected, answer = (_post(url, path, body).text for url in _warmed(engine.url, gateway, path, body))

    assert expected.endswith("\n\ndata: [DONE]\n\n")
    assert _kinds_of_events(answer) == _kinds_of_events(expected)


def _post(url: str, path: str, body: bytes) -> httpx.Response:
    return httpx.post(url + path, content=body, headers=HEADERS, timeout=60).raise_for_status()


def _warmed(engine_url: str, gateway: str, path: str, body: bytes) -> tuple[str, str]:
    """Both ways, the prompt being in the engine's prefix cache, which its usage tells of."""
    _post(engine_url, path, body)
    return engine_url, gateway


def _kinds_of_events(body: str) -> list[str]:
    """Each event's keys in their order, and its end; a run of equal ones counts once.

    How a run is cut into events is chance, and with it what a delta holds; `test_answers` compares what
    the deltas add up to.
    """
    kinds: list[str] = []
    for event in body.split("\n\n"):
        data = event.removeprefix("data: ")
        kind = event if data in ("", "[DONE]") else _kind(json.loads(data))
        if kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


def _kind(event: dict[str, Any]) -> str:
    return f"{list(event)} {[(list(choice), choice['finish_reason']) for choice in event['choices']]}"
