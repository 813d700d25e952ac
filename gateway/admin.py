"""Who may see `/admin/...` and `/metrics`, and where they are served.

Decides: whether a path is one of them, whether the place where they are served is open to other hosts, and the refusal of one request.

    key_sha256 given    every request needs one of the keys, in any of the headers that a client's key comes in: else 401
    none, on loopback   programs of this machine. What a proxy on it passes on (`Forwarded`, `X-Forwarded-...`, `X-Real-IP`, `Via`) or another name than this machine's own (a browser
                        whose page has made a name of its own lead here) gets 403, but for /metrics; so does a change that a browser sends (`Origin`), for any page may make it send one
    none, elsewhere     pages are shown, changes get 403, and the start and `headrace check` warn

Settings: `admin`, and `server.host` where they are on the clients' listener. Keys are kept as SHA-256 and compared in constant time, each with all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from gateway.errors import Refused
from gateway.settings import Settings
from gateway.tenants import KEY_HEADERS, key_in
from policies.terms import Refusal

METRICS = "/metrics"
ADMIN = "/admin/"
_PASSED_ON = frozenset({b"forwarded", b"x-real-ip", b"via"})
_LOOKING = frozenset({"GET", "HEAD"})


def is_admin(path: str) -> bool:
    return path == METRICS or path.startswith(ADMIN)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there. A name other than localhost may be any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_host(settings: Settings) -> str | None:
    """The address at which other hosts reach these pages without a key; None where none does."""
    admin = settings.admin
    host = settings.server.host if admin.port is None else admin.host
    return None if admin.key_sha256 or is_loopback(host) else host


def warning(settings: Settings) -> str | None:
    host = open_host(settings)
    if host is None:
        return None
    return (
        f"/metrics and /admin are shown to whoever reaches {host}, and rules cannot be forced there: "
        "set admin.key_sha256, or admin.port with admin.host on a loopback address"
    )


def _passed_by(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """What shows that a request does not come from a program of this machine that means this gateway; "" where nothing does."""
    for name, value in headers:
        if name in _PASSED_ON or name.startswith(b"x-forwarded-"):
            return name.decode()
        if name == b"host":
            host = (
                value.decode("latin-1").rpartition("]")[0].removeprefix("[")
                or value.decode("latin-1").partition(":")[0]
            )
            if host and not is_loopback(host):
                return f"the Host {host[:100]!r}"
    return ""


class Gate:
    """Made once for each configuration."""

    def __init__(self, settings: Settings) -> None:
        self._digests = [bytes.fromhex(written) for written in settings.admin.key_sha256]
        self._is_open = open_host(settings) is not None

    def refusal(
        self, method: str, headers: Sequence[tuple[bytes, bytes]], path: str = ADMIN
    ) -> Refused | None:
        """Of a request for one of them with these headers (lower-case names); None lets it in."""
        if self._digests:
            digest = sha256(key_in([pair for pair in headers if pair[0] in KEY_HEADERS])).digest()
            if sum(compare_digest(stored, digest) for stored in self._digests):  # none is left out
                return None
            return Refused(
                Refusal.UNAUTHORIZED, "This needs a key of admin.key_sha256, as `Authorization: Bearer <key>`"
            )
        if not self._is_open and path != METRICS and (passed_by := _passed_by(headers)):
            return Refused(
                Refusal.FORBIDDEN,
                f"Without a key these pages are for programs of this machine alone, and this request has {passed_by}: set admin.key_sha256",
            )
        if method in _LOOKING:
            return None
        if self._is_open:
            return Refused(
                Refusal.FORBIDDEN,
                "Changes are refused on an address that other hosts reach, for nobody is asked for a key: "
                "set admin.key_sha256, or admin.port with admin.host on a loopback address",
            )
        if any(name == b"origin" for name, _ in headers):
            return Refused(
                Refusal.FORBIDDEN, "Changes from a web page need a key: none is set in admin.key_sha256"
            )
        return None
