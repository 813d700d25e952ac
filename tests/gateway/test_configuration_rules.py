"""Rules beyond types: URLs, names, certificates, aliases, uniqueness; from a file and from the command line alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from gateway.configuration import ConfigurationError, Fault, backend_name, parse, verify
from gateway.settings import BackendSettings, PoolSettings, ServerSettings, Settings, WindowSettings, one_pool


def only_fault(text: str) -> Fault:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f.yaml", {})
    (fault,) = caught.value.faults
    return fault


def pool(*backends: str) -> str:
    lines = "".join(f"  - {{{backend}}}\n" for backend in backends)
    return f"pools:\n- name: a\n  backends:\n{lines}"


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "http://a.example.com.:8000/",
        "HTTPS://A_b-c:65535/prefix/v2",
        "http://127.0.0.1:1",
        "http://[::1]:8000",
        "http://[2001:db8::1]",
        "http://a/%20x",
        "unix:///run/vllm/engine.sock",
        "unix:///" + "x" * 106,
    ],
)
def test_a_good_url_is_kept_as_it_is(url: str) -> None:
    assert parse(pool(f"url: '{url}'"), "f", {}).pools[0].backends[0].url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is empty"),
        ("a:8000", "does not start with"),
        ("//a", "does not start with"),
        ("ftp://a", "does not start with"),
        ("http:/a", "does not start with"),
        ("http://", "has no host"),
        ("http:///x", "has no host"),
        ("http://:80", "bad host or port"),
        ("http://a:", "bad host or port"),
        ("http://a:x", "bad host or port"),
        ("http://a:-1", "bad host or port"),
        ("http://a:0", "has a port outside of 1 to 65535"),
        ("http://a:65536", "has a port outside of 1 to 65535"),
        ("http://a:123456", "bad host or port"),
        ("http://a..b", "bad host name"),
        ("http://-a", "bad host name"),
        ("http://" + "a" * 64, "bad host name"),
        ("http://" + "a." * 127 + "a", "bad host name"),
        ("http://127.0.0.256", "bad host name"),
        ("http://127.1", "bad host name"),
        ("http://::1", "bad host or port"),
        ("http://[::1", "bad host or port"),
        ("http://[::1]x", "bad host or port"),
        ("http://x[::1]", "bad host or port"),
        ("http://[127.0.0.1]", "bad IPv6 address"),
        ("http://[fe80::1%eth0]", "bad IPv6 address"),
        ("http://u:p@a", "holds a user name or password"),
        ("http://@a", "holds a user name or password"),
        ("http://a?x=1", "has a query"),
        ("http://a/?", "has a query"),
        ("http://a#x", "has a fragment"),
        ("http://a b", "holds a space"),
        ("http://a/\u00fc", "holds a space or another character"),
        ("unix://run/x.sock", "not the absolute path of a socket"),
        ("unix:///", "not the absolute path of a socket"),
        ("unix:///run/", "not the absolute path of a socket"),
        ("unix:/run/x.sock", "does not start with"),
        ("unix:///a%20b", "has a `%`"),
        ("unix:///" + "x" * 107, "longer than the 107 bytes"),
    ],
)
def test_a_bad_url_is_refused_with_the_allowed_shapes(url: str, says: str) -> None:
    fault = only_fault(pool(f"url: '{url}', name: n"))
    assert (fault.line, fault.key) == (4, "pools[0].backends[0].url")
    assert says in fault.message
    assert "allowed: http://HOST[:PORT][/PREFIX]" in fault.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("http://a", "http://a"),
        ("http://a", "HTTP://A.:80/"),
        ("https://a:443/v", "https://a/v/"),
        ("http://[::1]", "http://[0:0::1]:80"),
        ("unix:///x", "unix:///x"),
    ],
)
def test_one_backend_stands_once_however_its_url_is_spelled(first: str, second: str) -> None:
    fault = only_fault(pool(f"url: '{first}', name: m", f"url: '{second}', name: n"))
    assert (fault.line, fault.key) == (5, "pools[0].backends[1].url")
    assert fault.message.startswith("is the same as that of pools[0].backends[0]")


def test_one_backend_stands_in_one_pool_only() -> None:
    fault = only_fault(pool("url: 'http://a'") + "- {name: b, backends: [{url: 'http://a'}]}")
    assert (fault.line, fault.key) == (5, "pools[1].backends[0].url")


def test_backend_names_are_unique_over_all_pools() -> None:
    fault = only_fault(
        pool("url: 'http://a', name: n") + "- {name: b, backends: [{url: 'http://b', name: n}]}"
    )
    assert (fault.line, fault.key) == (5, "pools[1].backends[0].name")
    assert "is also the name of pools[0].backends[0]" in fault.message


def test_a_name_taken_from_a_url_has_to_be_unique_as_well() -> None:
    fault = only_fault(pool("url: 'http://a/1'", "url: 'http://a/2'"))
    assert (fault.line, fault.key) == (5, "pools[0].backends[1].name")


def test_a_url_that_gives_no_usable_name_asks_for_one() -> None:
    assert "add `name`" in only_fault(pool("url: 'unix:///a;b'")).message
    assert parse(pool("url: 'unix:///a;b', name: n"), "f", {}).pools[0].backends[0].name == "n"


def test_pool_names_are_unique() -> None:
    fault = only_fault(pool("url: 'http://a'") + "- {name: a, backends: [{url: 'http://b'}]}")
    assert (fault.line, fault.key) == (5, "pools[1].name")
    assert "is also the name of pools[0]" in fault.message


@pytest.mark.parametrize("name", ["a b", "a;b", "a=b", "a,b", "\u00e4", "x" * 129, 'a"'])
def test_names_can_stand_in_a_header_and_in_a_metric(name: str) -> None:
    fault = only_fault(pool(f"url: 'http://a', name: '{name}'"))
    assert (fault.line, fault.key) == (4, "pools[0].backends[0].name")
    assert "is not a name; allowed: " in fault.message
    fault = only_fault(f"pools: [{{name: '{name}', backends: [{{url: 'http://a'}}]}}]")
    assert (fault.line, fault.key) == (1, "pools[0].name")


def test_an_unnamed_backend_is_called_after_its_url() -> None:
    assert backend_name(BackendSettings(url="http://127.0.0.1:8001/v")) == "127.0.0.1:8001"
    assert backend_name(BackendSettings(url="unix:///run/e.sock")) == "/run/e.sock"
    assert backend_name(BackendSettings(url="http://a", name="n")) == "n"


@pytest.mark.parametrize("key", ["a b", "\u00e4"])
def test_an_api_key_can_stand_in_a_header(key: str) -> None:
    fault = only_fault(pool(f"url: 'http://a', api_key: '{key}'"))
    assert (fault.line, fault.key) == (4, "pools[0].backends[0].api_key")
    assert fault.message == "cannot be sent in a header; allowed: printable ASCII without spaces"


def test_a_certificate_authority_is_read_for_https(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    backends = parse(pool(f"url: 'https://a', ca_file: '{path}'"), "f", {}).pools[0].backends
    assert backends[0].ca_file == str(path)
    fault = only_fault(pool(f"url: 'http://a', ca_file: '{path}'"))
    assert (fault.line, fault.key) == (4, "pools[0].backends[0].ca_file")
    assert "is given for a URL that is not https" in fault.message


def test_a_certificate_authority_has_to_be_a_file_with_a_certificate(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path, says in (
        (tmp_path / "none.pem", "is not a file here"),
        (tmp_path, "is not a file here"),
        (empty, "holds no certificate"),
    ):
        fault = only_fault(pool(f"url: 'https://a', ca_file: '{path}'"))
        assert (fault.line, fault.key) == (4, "pools[0].backends[0].ca_file")
        assert says in fault.message


@pytest.mark.parametrize(
    ("alias", "key", "says"),
    [
        ("{a: ''}", "aliases.a", "has an empty side"),
        ("{'': a}", "aliases.", "has an empty side"),
        ("{a: a}", "aliases.a", "maps to an alias"),
        ("{a: b, b: c}", "aliases.a", "maps to an alias"),
    ],
)
def test_an_alias_names_a_model(alias: str, key: str, says: str) -> None:
    fault = only_fault(pool("url: 'http://a'") + f"aliases: {alias}")
    assert (fault.line, fault.key) == (5, key)
    assert says in fault.message


@pytest.mark.parametrize("host", ["", "a b", "[::1]", "127.0.0.1:80", "fe80::1%lo"])
def test_the_gateway_listens_on_an_address_or_a_name(host: str) -> None:
    fault = only_fault(pool("url: 'http://a'") + f"server: {{host: '{host}'}}")
    assert (fault.line, fault.key) == (5, "server.host")
    assert "is neither an IP address nor a host name" in fault.message


@pytest.mark.parametrize("origin", ["https://a/", "https://A", "a", "null", ""])
def test_an_origin_is_spelled_as_browsers_send_it(origin: str) -> None:
    fault = only_fault(pool("url: 'http://a'") + f"server:\n  cors_origins:\n  - '*'\n  - '{origin}'\n")
    assert (fault.line, fault.key) == (8, "server.cors_origins[1]")
    assert "is not an origin" in fault.message


def test_settings_of_the_command_line_obey_the_same_rules() -> None:
    verify(one_pool(("http://a", "http://b"), ServerSettings()), "command line")
    bad = Settings(
        pools=(
            PoolSettings(name="a", backends=(BackendSettings(url="b"),), window=WindowSettings(max=0)),
            PoolSettings(name="a"),
        ),
        server=ServerSettings(port=-1, max_body_mb=float("nan")),
    )
    with pytest.raises(ConfigurationError) as caught:
        verify(bad, "command line")
    assert {fault.key for fault in caught.value.faults} == {
        "pools[0].backends[0].url",
        "pools[0].window.max",
        "pools[1].name",
        "pools[1].backends",
        "server.port",
        "server.max_body_mb",
    }
    assert all(str(fault).startswith(f"command line: {fault.key}: ") for fault in caught.value.faults)


def test_the_first_pause_of_the_breaker_is_no_longer_than_its_longest() -> None:
    breaker = "breaker: {open_seconds: 20, max_open_seconds: 10}\n"
    fault = only_fault(pool("url: http://a") + breaker)
    assert (fault.line, fault.key) == (5, "breaker.open_seconds")
    assert "is above `max_open_seconds`" in fault.message
    assert only_fault(pool("url: http://a") + "breaker: {open_seconds: 301}\n").key == "breaker.open_seconds"
    assert only_fault(pool("url: http://a") + "breaker: {max_open_seconds: 4}\n").key.startswith("breaker")
    parse(pool("url: http://a") + "breaker: {open_seconds: 10, max_open_seconds: 10}\n", "f", {})
