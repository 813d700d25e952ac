"""A captured request (`tests.captures`), asked of a real engine and through the gateway: all of the two answers is compared but ids, times,
what belongs to one connection and what the gateway says of itself.

Plain bodies are equal byte for byte. Streams are equal event by event, and their events byte for byte; but an engine joins two tokens into
one event when it is quicker than its HTTP side, so a stream is asked for until both ways have cut it alike, and what its events add up
to has to be equal each time. Events of several choices come in the order of each choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests import client
from tests.captures import DONE, Capture
from tests.engine.answers import joined
from tests.framing import BodyReader, Headers, Layout

# A bound against hanging: an engine thinks for seconds about a long tool call, for more on two busy cores.
WAIT_SECONDS = 60
# The first may have been the first with its prompt, which `cached_tokens` tells.
PLAIN_ROUNDS = 2
STREAM_ROUNDS = 12

NOT_COMPARED = {
    b"connection",  # of one connection, as is how its body is framed, which is compared as such
    b"keep-alive",
    b"transfer-encoding",
    b"x-headrace-route",  # the gateway's word of what it decided
    b"x-request-id",  # looked at in `same_request_id`
}
OF_ONE_ANSWER = {
    b"date": b"*",
    b"content-length": b"*",  # ids differ in length; that the body has the length it should is looked at
}

# vLLM's ids end with the request's, which the gateway gives where the client does not: `caller-42` stays.
_RANDOM = re.compile(rb'(?<=["_-])[0-9a-f]{16,32}(?=["-])')
_TIME = re.compile(rb'"(created|created_at|completed_at)":[0-9.]+')
# xgrammar puts the time of day into its complaint about a schema.
_CLOCK = re.compile(rb"\[\d\d:\d\d:\d\d\]")
_TEXT = re.compile(rb'"(content|text)":"(?:[^"\\]|\\.)*"')
_ID = re.compile(rb'"id":"(?:[^"\\]|\\.)*"')
_CHOICE = re.compile(rb'"choices":\[\{"index":(\d+)')
_FIT_FOR_A_LOG = re.compile(rb"[!-~]{1,128}")

SAMPLED = {
    "sglang-0.5.23/chat-n2",  # takes no notice of the seed
    "sglang-0.5.23/stream-n2",
    "sglang-0.5.23/text-n2",
    "vllm-0.32.0/ok-content-type-charset",  # names no temperature
    "sglang-0.5.23/ok-content-type-charset",
    "vllm-0.32.0/auth-none-invocations",
}
CUT_BY_CHANCE = {
    "sglang-0.5.23/stream-tool-named",  # some 370 events: never cut alike twice
    "sglang-0.5.23/stream-tool-required",
}


@dataclass(frozen=True)
class Shown:
    """What a client can see of an answer, but for its body."""

    start_line: bytes
    headers: Headers
    layout: Layout
    complete: bool


async def replay(url: str, capture: Capture) -> client.Answer:
    at = urlsplit(url)
    assert at.hostname is not None
    return await client.send(at.port or 80, capture.request(), at.hostname, wait_seconds=WAIT_SECONDS)


async def same_both_ways(engine_url: str, gateway_url: str, capture: Capture) -> None:
    compared = _compared(capture)
    is_cut_by_chance = compared is _events or compared is _kinds
    rounds = STREAM_ROUNDS if is_cut_by_chance else PLAIN_ROUNDS
    for number in range(rounds):
        direct = await replay(engine_url, capture)
        assert direct.status == capture.status, direct.body
        through = await replay(gateway_url, capture)
        assert shown(through) == shown(direct, is_understood=capture.name != "stream-http10")
        same_request_id(direct, through, capture)
        expected, answer = masked(direct.body, capture), masked(through.body, capture)
        if compared(answer) == compared(expected):
            return
        if number and compared is _events:
            assert _sum(answer) == _sum(expected)
        if number + 1 == rounds:
            assert compared(answer) == compared(expected)


def shown(answer: client.Answer, is_understood: bool = True) -> Shown:
    """`is_understood`: vLLM sends chunks to a client of HTTP/1.0, which does not know them; the gateway does not."""
    headers = [(name.lower(), value) for name, value in answer.headers]
    return Shown(
        answer.head.start_line,
        [(name, OF_ONE_ANSWER.get(name, value)) for name, value in headers if name not in NOT_COMPARED],
        BodyReader.of_answer(answer.head, answer.status, b"GET").layout
        if is_understood
        else Layout.UNTIL_CLOSE,
        answer.complete,
    )


def same_request_id(direct: client.Answer, through: client.Answer, capture: Capture) -> None:
    """The client's own where it is fit for a log, else one that is: the gateway's promise, with or without the engine's."""
    [given] = through.head.values(b"x-request-id")
    assert _FIT_FOR_A_LOG.fullmatch(given)
    if is_fit(capture) and (said := direct.value(b"x-request-id")) is not None:
        assert given == said


def is_fit(capture: Capture) -> bool:
    """Whether the request names an id that the gateway keeps (README.md, "Request headers")."""
    named = [value for name, value in capture.request_headers if name.lower() == b"x-request-id"]
    return bool(named) and _FIT_FOR_A_LOG.fullmatch(named[0]) is not None


def masked(body: bytes, capture: Capture) -> bytes:
    """Without what is another in each answer."""
    body = _TIME.sub(rb'"\1":0', _RANDOM.sub(b"*", body))
    if any(name.lower() == b"x-request-id" for name, _ in capture.request_headers) and not is_fit(capture):
        body = _ID.sub(b'"id":"*"', body)
    return _TEXT.sub(rb'"\1":"*"', body) if capture.id in SAMPLED else _CLOCK.sub(b"[*]", body)


def _compared(capture: Capture) -> Callable[[bytes], object]:
    if not capture.is_stream:
        return bytes
    if capture.id in SAMPLED:
        return _kinds
    return _sum if capture.id in CUT_BY_CHANCE else _events


def _events(body: bytes) -> list[bytes]:
    """In their order, but those of several choices one choice after the other."""
    events = body.split(b"\n\n")
    choices = [int(found[1]) if (found := _CHOICE.search(event)) else None for event in events]
    last = max((choice for choice in choices if choice is not None), default=0)
    if not last:
        return events
    order = [last + 1 if choice is None else choice for choice in choices]
    return [event for _, event in sorted(zip(order, events, strict=True), key=lambda pair: pair[0])]


def _kinds(body: bytes) -> list[bytes]:
    """A run of equal events counts once: with other tokens there are others that make no event."""
    events = _events(body)
    return [event for event, before in zip(events, [b"", *events], strict=False) if event != before]


def _sum(body: bytes) -> tuple[Any, bool]:
    """What the events add up to, and whether the last is an end."""
    found = [line for line in body.split(b"\n") if line.startswith(b"data: {")]
    return joined(json.loads(line.removeprefix(b"data: ")) for line in found), body.endswith(DONE)
