"""The limit of an answer's length inside a body, and every other byte as it was."""

from __future__ import annotations

import json

import pytest

from gateway.clamp import clamped


def clamp(body: bytes, limit: int = 100, is_responses: bool = False) -> bytes:
    return clamped(body, json.loads(body), limit, is_responses)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_a_larger_limit_is_lowered_and_a_smaller_one_stays(name: str) -> None:
    body = b'{ "a" : 1.50, "%b":4096 ,"b": [ ]}'
    assert clamp(body % name.encode()) == b'{ "a" : 1.50, "%b":100 ,"b": [ ]}' % name.encode()
    for small in (b"100", b"100.0", b"7"):
        assert clamp(b'{"%b": %b}' % (name.encode(), small)) == b'{"%b": %b}' % (name.encode(), small)


def test_a_body_without_a_limit_gets_one_in_the_words_of_its_api() -> None:
    assert clamp(b'{"a": 1}') == b'{"a": 1,"max_tokens":100}'
    assert clamp(b'{"a": 1}', is_responses=True) == b'{"a": 1,"max_output_tokens":100}'
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
