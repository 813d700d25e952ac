"""What a backend's URL has to look like, when two URLs are the same backend, and what an unnamed backend is called.

Allowed: `http://HOST[:PORT][/PREFIX]`, `https://...`, `unix:///ABSOLUTE/PATH`. Refused: userinfo (a password would end up in logs;
`api_key` is its place), query and fragment (every request brings its own path). No function here touches the network, and no
message quotes the URL.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

ALLOWED = "allowed: http://HOST[:PORT][/PREFIX], https://HOST[:PORT][/PREFIX], unix:///ABSOLUTE/PATH"
MAX_SOCKET_PATH_BYTES = 107
"""`sun_path` of Linux less its closing NUL; a longer path fails at every connect."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL_TEXT = re.compile(r"""[!-~]+""")
_NOT_IN_URLS = frozenset('"<>\\^`{|}')
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def url_fault(url: str) -> str | None:
    """What is wrong with `url`, or None."""
    what = _wrong(url)
    return f"{what}; {ALLOWED}" if what else None


def web_url_fault(url: str) -> str | None:
    """What is wrong with an address that the gateway itself calls, or None: http or https, without a user's name or a fragment; a query is allowed."""
    what = _wrong(url.partition("?")[0])
    if what is None and not url.lower().startswith(("http://", "https://")):
        what = "is no web address"
    return f"{what}; allowed: http://HOST[:PORT][/PATH], https://HOST[:PORT][/PATH]" if what else None


def host_fault(host: str) -> str | None:
    """What is wrong with an address to listen on (an IP address without brackets, or a host name), or None."""
    if _is_ip(host) or _is_host_name(host):
        return None
    return "is neither an IP address nor a host name; allowed: such as 127.0.0.1, ::1, localhost; 0.0.0.0 or :: for every interface"


def same_backend(url: str) -> tuple[str, str, int, str]:
    """Equal for two valid URLs that reach one backend: scheme, host, port and prefix in one spelling."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return "unix", "", 0, parts.path
    found = _AUTHORITY.fullmatch(parts.netloc)
    assert found is not None, "url_fault() let this URL pass"
    host = str(ipaddress.IPv6Address(found["v6"])) if found["v6"] else found["host"].lower().rstrip(".")
    port = int(found["port"] or _DEFAULT_PORTS[parts.scheme])
    return parts.scheme, host, port, parts.path.rstrip("/")


def name_from_url(url: str) -> str:
    """The name of a backend that was given none: `host[:port]` as the URL has it, or the path of its socket."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else parts.netloc


def is_https(url: str) -> bool:
    return url[:8].lower() == "https://"


def _wrong(url: str) -> str | None:
    if not _URL_TEXT.fullmatch(url) or not _NOT_IN_URLS.isdisjoint(url):
        return "is empty or holds a space or another character that URLs do not have"
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in ("http", "https", "unix"):
        return "does not start with http://, https:// or unix://"
    if "?" in url:
        return "has a query"
    if "#" in url:
        return "has a fragment"
    authority, slash, path = url[len(scheme) + 3 :].partition("/")
    if "@" in authority:
        return "holds a user name or password (use `api_key`)"
    if scheme == "unix":
        return _wrong_socket(authority, slash + path)
    return _wrong_authority(authority)


def _wrong_socket(authority: str, path: str) -> str | None:
    if authority or path in ("", "/") or path.endswith("/"):
        return "is not the absolute path of a socket"
    if "%" in path:
        return "has a `%`, which is not decoded in the path of a socket"
    if len(path) > MAX_SOCKET_PATH_BYTES:
        return f"has a path longer than the {MAX_SOCKET_PATH_BYTES} bytes that a socket can have"
    return None


def _wrong_authority(authority: str) -> str | None:
    if authority in ("", ":"):
        return "has no host"
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return "has a bad host or port (the port is 1 to 65535; an IPv6 address stands in brackets)"
    if found["port"] is not None and not 1 <= int(found["port"]) <= 65535:
        return "has a port outside of 1 to 65535"
    if found["v6"] is not None:
        return None if ":" in found["v6"] and _is_ip(found["v6"]) else "has a bad IPv6 address"
    return None if _is_host_name(found["host"]) else "has a bad host name"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # a zone means something on one machine only, and is no part of a Host header


def _is_host_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    # The last label of a name is never a number (RFC 1123 section 2.1), so this has to be an IPv4 address, and a right one.
    return not labels[-1].isdigit() or _is_ip(text)
