"""The limit of an answer's length inside a body, and every other byte as it was."""

from __future__ import annotations

import json

import pytest

from gateway.clamp import clamped
from gateway.paths import route_of


def clamp(body: bytes, limit: int = 100, path: str = "/v1/chat/completions") -> bytes:
    route = route_of(path, path.encode(), "POST")
    assert route is not None
    return clamped(body, json.loads(body), limit, route.limits)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("max_tokens", "/v1/chat/completions"),
        ("max_completion_tokens", "/v1/chat/completions"),
        ("max_tokens", "/v1/completions"),
        ("max_tokens", "/v1/messages"),
        ("max_output_tokens", "/v1/responses"),
    ],
)
def test_a_larger_limit_is_lowered_and_a_smaller_one_stays(name: str, path: str) -> None:
    body = b'{ "a" : 1.50, "%b":4096 ,"b": [ ]}'
    assert clamp(body % name.encode(), path=path) == b'{ "a" : 1.50, "%b":100 ,"b": [ ]}' % name.encode()
    for small in (b"100", b"100.0", b"7"):
        body = b'{"%b": %b}' % (name.encode(), small)
        assert clamp(body, path=path) == body


@pytest.mark.parametrize(
    ("name", "path", "own"),
    [
        ("max_output_tokens", "/v1/chat/completions", "max_tokens"),
        ("max_completion_tokens", "/v1/completions", "max_tokens"),
        ("max_completion_tokens", "/v1/messages", "max_tokens"),
        ("max_tokens", "/v1/responses", "max_output_tokens"),
    ],
)
def test_a_limit_that_another_api_knows_does_not_stand_in_for_this_ones(
    name: str, path: str, own: str
) -> None:
    body = b'{"%b": 7}' % name.encode()
    assert clamp(body, path=path) == b'{"%b": 7,"%b":100}' % (name.encode(), own.encode())


def test_a_body_without_a_limit_gets_one_in_the_words_of_its_api() -> None:
    assert clamp(b'{"a": 1}') == b'{"a": 1,"max_tokens":100}'
    assert clamp(b'{"a": 1}', path="/v1/responses") == b'{"a": 1,"max_output_tokens":100}'
    assert clamp(b'{"max_tokens": null, "a": 1}') == b'{"max_tokens": 100, "a": 1}'
    assert clamp(b"{}") == b'{"max_tokens":100}'


def test_of_two_limits_both_are_lowered() -> None:
    body = b'{"max_tokens": 5000, "max_completion_tokens": 6000}'
    assert clamp(body) == b'{"max_tokens": 100, "max_completion_tokens": 100}'
    assert clamp(b'{"max_tokens": 5000, "max_completion_tokens": 7}') == (
        b'{"max_tokens": 100, "max_completion_tokens": 7}'
    )


@pytest.mark.parametrize("value", ["4096.0", '"4096"', "1e9", '" 4096 "', "1" + "0" * 400, '"inf"'])
def test_what_an_engine_reads_as_a_larger_number_is_one(value: str) -> None:
    assert clamp(b'{"max_tokens": %b}' % value.encode()) == b'{"max_tokens": 100}'


@pytest.mark.parametrize("value", ["true", '"many"', "[4096]", "-5", '"nan"', "{}"])
def test_what_is_no_number_is_the_engines_to_refuse(value: str) -> None:
    body = b'{"max_tokens": %b}' % value.encode()
    assert clamp(body) == body


def test_least_tokens_above_the_limit_are_lowered_with_it_for_an_engine_refuses_both_together() -> None:
    assert clamp(b'{"min_tokens": 200, "max_tokens": 300}') == b'{"min_tokens": 100, "max_tokens": 100}'
    assert clamp(b'{"min_tokens": 200}') == b'{"min_tokens": 100,"max_tokens":100}'
    assert clamp(b'{"min_tokens": 20, "max_tokens": 30}') == b'{"min_tokens": 20, "max_tokens": 30}'
