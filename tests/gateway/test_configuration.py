"""Reading a configuration: YAML, keys, types and the environment. Every fault is checked with its file, line and key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.configuration import ConfigurationError, Fault, load, parse
from gateway.configuration.document import MAX_BYTES, MAX_DEPTH
from gateway.settings import BackendSettings, PoolSettings, Settings, WindowSettings
from policies.pool_choice import PoolRole

POOLS = 'pools: [{name: a, backends: [{url: "http://a:1"}]}]\n'


def faults_of(text: str, environment: Mapping[str, str] | None = None) -> tuple[Fault, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f.yaml", environment or {})
    return caught.value.faults


def only_fault(text: str, environment: Mapping[str, str] | None = None) -> Fault:
    (fault,) = faults_of(text, environment)
    assert fault.file == "f.yaml"
    return fault


def test_the_smallest_file_takes_every_default() -> None:
    backend = BackendSettings(url="http://a:1")
    assert parse(POOLS, "f", {}) == Settings(pools=(PoolSettings(name="a", backends=(backend,)),))


def test_values_take_the_place_of_defaults() -> None:
    settings = parse(
        "pools:\n"
        "  - {name: a, role: low-latency, window: {max: 4}, backends: [{url: unix:///e.sock, name: e, api_key: k}]}\n"
        "server: {port: 0, max_body_mb: 1.5, cors_origins: ['*']}\n"
        "timeouts: {connect_seconds: 1e1}\n"
        "log: {requests: false}\n"
        "aliases: {gpt: qwen}\n",
        "f",
        {},
    )
    backend = BackendSettings(url="unix:///e.sock", name="e", api_key="k")
    pool = PoolSettings(
        name="a", role=PoolRole.LOW_LATENCY, window=WindowSettings(max=4), backends=(backend,)
    )
    assert settings.pools == (pool,)
    assert (settings.server.port, settings.server.max_body_mb) == (0, 1.5)
    assert settings.server.cors_origins == ("*",)
    assert settings.timeouts.connect_seconds == 10
    assert not settings.log.requests
    assert settings.aliases == {"gpt": "qwen"}


def test_a_lane_keeps_its_own_defaults_where_a_part_of_it_is_given() -> None:
    lanes = parse(
        POOLS + "lanes: {interactive: {max_wait_seconds: 5}, batch: {max_wait_seconds: null}}", "f", {}
    ).lanes
    assert (lanes.interactive.weight, lanes.standard.weight, lanes.batch.weight) == (8, 4, 1)
    assert (lanes.interactive.max_wait_seconds, lanes.batch.max_wait_seconds) == (5, None)
    assert lanes.emergency.reserved_per_pool == 2


def test_an_empty_window_is_automatic() -> None:
    [pool] = parse(POOLS.replace("a,", "a, window: {},"), "f", {}).pools
    assert pool.window == WindowSettings(max=None, min=None, start=None)


def test_a_window_that_is_null_is_no_window() -> None:
    assert parse(POOLS.replace("a,", "a, window: null,"), "f", {}).pools[0].window is None


@pytest.mark.parametrize(
    ("line", "key", "says"),
    [
        ("server: {hots: x}", "server.hots", "unknown key (did you mean host?); allowed: host, port"),
        ("sever: {}", "sever", "did you mean server?"),
        ("server: {port: x}", "server.port", "not a whole number"),
        ("server: {port: 80.5}", "server.port", "not a whole number"),
        ("server: {port: '80'}", "server.port", "without quotes"),
        ("server: {port: 010}", "server.port", "not a whole number"),
        ("server: {port: 0x10}", "server.port", "not a whole number"),
        ("server: {port: 1:30}", "server.port", "not a whole number"),
        ("server: {port: true}", "server.port", "not a whole number"),
        ("server: {port: }", "server.port", "not a whole number"),
        ("server: {port: [1]}", "server.port", "is a list; a single value is needed"),
        ("server: {port: {a: 1}}", "server.port", "is a mapping; a single value is needed"),
        ("server: {port: -1}", "server.port", "-1 is out of range; allowed: 0 to 65535"),
        ("server: {port: 65536}", "server.port", "65536 is out of range; allowed: 0 to 65535"),
        ("server: {max_body_mb: .nan}", "server.max_body_mb", "a finite decimal number"),
        ("server: {max_body_mb: .inf}", "server.max_body_mb", "a finite decimal number"),
        ("server: {max_body_mb: nan}", "server.max_body_mb", "a finite decimal number"),
        ("server: {max_body_mb: 1e999}", "server.max_body_mb", "a finite decimal number"),
        ("server: {max_body_mb: 0}", "server.max_body_mb", "0 is out of range; allowed: 0.001 to 4096"),
        (f"server: {{port: {'9' * 5000}}}", "server.port", "not a whole number"),
        ("server: {host: 1}", "server.host", "is not text; put it in quotes"),
        ("server: {host: }", "server.host", "has no value"),
        ('server: {host: "a\\nb"}', "server.host", "control character"),
        ('server: {host: "\\ud800"}', "server.host", "control character"),
        ("server: {cors_origins: '*'}", "server.cors_origins", "is a single value; a list is needed"),
        ("server: {cors_origins: [1]}", "server.cors_origins[0]", "is not text"),
        ("server:", "server", "is empty; a mapping is needed"),
        ("server: []", "server", "is a list; a mapping is needed"),
        ("log: {requests: yes}", "log.requests", "not a boolean; allowed: true, false"),
        ("log: {requests: 1}", "log.requests", "not a boolean"),
        ("log: {requests: 'true'}", "log.requests", "not a boolean"),
        ("aliases: [a]", "aliases", "is a list; a mapping of names to values is needed"),
        ("aliases: {a: 1}", "aliases.a", "is not text"),
        ("aliases: {1: a}", "aliases", "has a key that is not text"),
        ("aliases: {[a]: b}", "aliases", "a key is text"),
        ("aliases: {'${A}': b}", "aliases", "the environment fills values only"),
        ("aliases: {a: b, a: c}", "aliases.a", "stands there twice, first on line 2"),
        ("lanes: []", "lanes", "is a list; a mapping is needed, with the keys emergency, interactive"),
        ("lanes: {urgent: {}}", "lanes.urgent", "is an unknown key"),
        ("lanes: {batch: {weight: 0}}", "lanes.batch.weight", "allowed: 0.01 to 1000"),
        ("lanes: {emergency: {weight: 1}}", "lanes.emergency.weight", "is an unknown key"),
        ("business_types: {}", "business_types", "is a mapping; a list is needed"),
        ("business_types: [{}]", "business_types[0].name", "is missing from business_types[0]"),
        (
            "tenants: [{name: t, trust_headers: true, max_lane: top}]",
            "tenants[0].max_lane",
            "allowed: emergency, interactive",
        ),
        ("anonymous: {allow: no}", "anonymous.allow", "is not a boolean"),
    ],
)
def test_a_fault_names_its_line_and_key_and_what_is_allowed(line: str, key: str, says: str) -> None:
    fault = only_fault(POOLS + line)
    assert (fault.line, fault.key) == (2, key)
    assert says in fault.message


@pytest.mark.parametrize(
    ("pool", "key", "says"),
    [
        ("role: batch", "pools[0].role", "allowed: high-batch, low-latency"),
        ("role: low-latncy", "pools[0].role", "did you mean low-latency?"),
        ("window: {start: 2, min: 3}", "pools[0].window.start", "is outside of `min` to `max`"),
        (
            "window: {max_tokens: 0}",
            "pools[0].window.max_tokens",
            "0 is out of range; allowed: 1 to 1000000000",
        ),
        ("window: {max_prefill_tokens: -1}", "pools[0].window.max_prefill_tokens", "-1 is out of range"),
        ("window: {prefill_seconds: 0}", "pools[0].window.prefill_seconds", "allowed: 0.01 to 3600"),
        ("window: {max: 0}", "pools[0].window.max", "0 is out of range; allowed: 1 to 100000"),
        ("window: {max: 1, min: 0}", "pools[0].window.min", "0 is out of range; allowed: 1 to 100000"),
        ("window: {max: 1, min: 2}", "pools[0].window.min", "is above `max`"),
        ("window: {max: 4, start: 5}", "pools[0].window.start", "is outside of `min` to `max`"),
        ("window: {max: 4, min: 3, start: 2}", "pools[0].window.start", "is outside of `min` to `max`"),
        ("batching: {min: 25}", "pools[0].batching.min", "is above `max`"),
        ("prompt_tokens: {min: 5, max: 4}", "pools[0].prompt_tokens.min", "is above `max`"),
    ],
)
def test_a_fault_in_a_pool_names_its_index(pool: str, key: str, says: str) -> None:
    fault = only_fault(f"pools:\n- name: a\n  backends: [{{url: 'http://a'}}]\n  {pool}\n")
    assert (fault.line, fault.key) == (4, key)
    assert says in fault.message


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("server: {}", 1, "pools", "is missing from the file"),
        ("\npools: []", 2, "pools", "at least one"),
        ("pools:\n  - name: a\n", 2, "pools[0].backends", "is missing from pools[0]"),
        ("pools:\n  - name: a\n    backends: []\n", 3, "pools[0].backends", "at least one"),
        ("pools:\n  - backends: [{url: 'http://a'}]\n", 2, "pools[0].name", "is missing from pools[0]"),
        ("pools:\n  - name: a\n    backends:\n    - name: b\n", 4, "pools[0].backends[0].url", "is missing"),
        (
            "pools:\n  - name: a\n    backends:\n    - http://a\n",
            4,
            "pools[0].backends[0]",
            "a mapping is needed",
        ),
    ],
)
def test_what_has_no_default_has_to_be_given(text: str, line: int, key: str, says: str) -> None:
    fault = only_fault(text)
    assert (fault.line, fault.key) == (line, key)
    assert says in fault.message


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "is empty"),
        ("# nothing\n\n", 1, "is empty"),
        ("null", 1, "is empty"),
        ("\n- a", 2, "must be a mapping"),
        ("text", 1, "must be a mapping"),
        ("a: 1\nb: [1\nc: 2\n", 3, "is not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "is not valid YAML"),
        ("a: 1\n--- \nb: 1\n", 2, "is not valid YAML"),
        ("a: 1\nb: \x00", 2, "control character"),
        ('a: "\\UFFFFFFFF"', 0, "is not valid YAML"),
        ("a: 1\nb: &x 1", 2, "anchors"),
        ("a: 1\nb: *x", 2, "aliases"),
        ("a: 1\nb: !x 1", 2, "tags"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []", 2, "tags"),
        ("a: 1\nb: !x!y 1", 2, "is not valid YAML"),
        ("a:\n " + "[" * (MAX_DEPTH + 1), 2, "nested deeper than 16 levels"),
        ("[" * 100_000, 1, "nested deeper than 16 levels"),
        ("- " * 100_000, 1, "nested deeper than 16 levels"),
        ("#" * (MAX_BYTES + 1), 0, "is too long"),
    ],
)
def test_a_file_that_is_no_configuration_at_all_says_where(text: str, line: int, says: str) -> None:
    fault = only_fault(text)
    assert (fault.line, fault.key) == (line, "")
    assert says in fault.message


def test_every_anchor_alias_and_tag_is_named_in_one_pass() -> None:
    assert [fault.line for fault in faults_of("a: &x 1\nb: *x\nc: *x\nd: !t 1\n")] == [1, 2, 3, 4]


def test_all_faults_are_found_in_one_pass_and_stand_in_the_order_of_the_file() -> None:
    text = (
        "server: {port: 70000, hots: x}\n"
        "rules: {}\n"
        "pools:\n"
        "  - name: a\n"
        "    backends: [{url: 'ftp://x'}]\n"
        "  - name: a\n"
        "    role: x\n"
        "    backends: [{url: 'http://a'}, {url: 'http://A:80/'}]\n"
        "aliases: {a: b, b: c}\n"
    )
    assert [(fault.line, fault.key) for fault in faults_of(text)] == [
        (1, "server.hots"),
        (1, "server.port"),
        (2, "rules"),
        (5, "pools[0].backends[0].url"),
        (6, "pools[1].name"),
        (7, "pools[1].role"),
        (8, "pools[1].backends[1].url"),
        (9, "aliases.a"),
    ]


def test_an_error_prints_one_line_for_each_fault() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(POOLS + "server:\n  port: x\nlog: 1\n", "dir/f.yaml", {})
    first, second = str(caught.value).splitlines()
    assert first.startswith("dir/f.yaml:3: server.port: is not a whole number; allowed: ")
    assert second.startswith("dir/f.yaml:4: log: is a single value; a mapping is needed")


def test_a_fault_is_one_printable_line_whatever_its_key_holds() -> None:
    fault = only_fault(POOLS + 'aliases: {"a\\u2028\\u202e": 1}')
    assert str(fault).startswith("f.yaml:2: aliases.a\\u2028\\u202e: ")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${PORT}", "9000"),
        ("'${PORT}'", "9000"),
        ('"${PORT}"', " 9000 "),
    ],
)
def test_one_variable_alone_takes_the_type_of_its_setting(written: str, value: str) -> None:
    text = f"{POOLS}server:\n  port: {written}\n"
    assert parse(text, "f", {"PORT": value}).server.port == 9000


def test_one_variable_alone_fills_numbers_booleans_words_and_text() -> None:
    settings = parse(
        "pools:\n- name: ${N}\n  role: ${R}\n  backends:\n  - url: ${U}\n    api_key: ${K}\n"
        "server:\n  max_body_mb: ${MB}\nlog:\n  requests: ${L}\n",
        "f",
        {"N": "null", "R": "low-latency", "U": "http://a", "K": "1234", "MB": "0.5", "L": "false"},
    )
    backend = BackendSettings(url="http://a", api_key="1234")
    assert settings.pools == (PoolSettings(name="null", role=PoolRole.LOW_LATENCY, backends=(backend,)),)
    assert settings.server.max_body_mb == 0.5
    assert not settings.log.requests


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("http://${HOST}:${PORT}/v", "http://h:1/v"),
        ("http://a/$${HOST}", None),
        ("http://a/$HOST", "http://a/$HOST"),
        ("http://a/$$HOST", "http://a/$$HOST"),
    ],
)
def test_variables_may_stand_inside_a_text(written: str, expected: str | None) -> None:
    text = f"pools: [{{name: a, backends: [{{url: '{written}'}}]}}]"
    if expected is None:
        assert "is empty or holds a space or another character" in only_fault(text, {}).message
    else:
        assert parse(text, "f", {"HOST": "h", "PORT": "1"}).pools[0].backends[0].url == expected


def test_a_doubled_dollar_escapes_a_variable() -> None:
    text = POOLS + "aliases: {a: '$${HOME}', b: 'x-$${HOME}-${HOME}'}"
    assert parse(text, "f", {"HOME": "h"}).aliases == {"a": "${HOME}", "b": "x-${HOME}-h"}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("${NOT_SET}", "environment variable NOT_SET is not set"),
        ("x${ONE}${TWO}", "environment variable ONE, TWO is not set"),
        ("${}", "has a `${` that no `NAME}` follows"),
        ("${A:-b}", "has a `${` that no `NAME}` follows"),
        ("${A", "has a `${` that no `NAME}` follows"),
    ],
)
def test_a_variable_that_cannot_be_filled_is_a_fault(written: str, says: str) -> None:
    fault = only_fault(f"{POOLS}aliases:\n  a: '{written}'\n", {"A": "a"})
    assert (fault.line, fault.key) == (3, "aliases.a")
    assert says in fault.message


def test_a_variable_inside_a_longer_scalar_does_not_make_a_number() -> None:
    assert "not a whole number" in only_fault(f"{POOLS}server:\n  port: 80${{P}}\n", {"P": "80"}).message


@pytest.mark.parametrize(
    "backend",
    [
        "{url: 'http://a', api_key: 's3cret key'}",
        "{url: 'http://a', api_key: ['s3cret']}",
        "{url: 'http://a', api_keys: s3cret}",
        "{url: 'http://a', api_key:s3cret}",
        "{url: 'http://a', api_key: !s3cret }",
        "{url: 'http://a', api_key: !s3cret!x }",
        "{url: 'http://a', api_key: &s3cret }",
        "{url: 'http://a', api_key: *s3cret }",
        "{url: 'http://a', api_key: '${s3cret'}",
        "{url: 'http://u:s3cret@a'}",
        "{url: 'http://a?key=s3cret'}",
        "{url: '${SECRET}'}",
        "s3cret",
    ],
)
def test_no_message_quotes_a_secret(backend: str) -> None:
    text = f"pools: [{{name: a, backends: [{backend}]}}]"
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f", {"SECRET": "s3cret"})
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value)


def test_no_message_quotes_a_number_from_the_environment() -> None:
    fault = only_fault(f"{POOLS}server:\n  port: ${{PIN}}\n", {"PIN": "123456"})
    assert fault.message == "the value is out of range; allowed: 0 to 65535"


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + POOLS.encode())
        assert load(str(path), {}).pools[0].name == "a"


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (None, 0, "cannot be read: No such file or directory"),
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8"),
        (b"#" * (MAX_BYTES + 1), 0, "is too long; at most 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_fault(
    content: bytes | None, line: int, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(str(path), {})
    (fault,) = caught.value.faults
    assert (fault.file, fault.line) == (str(path), line)
    assert fault.message.startswith(says)


@pytest.mark.parametrize("path", [".", "nul\0", ""])
def test_a_path_that_is_no_file_is_a_fault(path: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(path, {})
