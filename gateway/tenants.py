"""Which tenant a request belongs to, by its key.

Decides: the tenant, or a 401. The key is what stands in `Authorization: Bearer`, else in `x-api-key`, else in `api-key`. Without tenants in the
configuration nobody is asked for a key, every client is `anonymous`, and whatever it sent passes to the engine untouched. With tenants a
wrong key is refused (the client means to be somebody), and a missing one is `anonymous` where that is allowed.
With tenants a client's key was meant for this gateway, wherever it wrote it: only what `without_credentials` leaves of the headers and `without_keys` of a query is
forwarded. A key shorter than `LEAST_KEY_BYTES` is not looked for by its text in other places: it might be a part of any word.
Settings: `tenants`, `anonymous`.

Secrets: only SHA-256 digests are kept. A digest is looked up by its first 8 bytes and compared as a whole in constant time. What that lookup
takes may depend on those 8 bytes of the digest of the guess, of which a stranger, without inverting SHA-256, learns nothing about a key;
and nothing is cached under the keys themselves, since hashing one takes less than a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import unquote_plus

from gateway.errors import Refused
from gateway.settings import AnonymousSettings, TenantSettings
from policies.lanes import RANK
from policies.terms import Lane, Refusal

KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})
"""Where a key is looked for."""
CREDENTIAL_HEADERS = KEY_HEADERS | {b"cookie"}
"""Where a client may have put one, a key of the engine's own among them."""
LEAST_KEY_BYTES = 8
_KEY_MEMBERS = frozenset({"key", "api_key", "api-key", "apikey", "access_token"})

_PREFIX_BYTES = 8
_BEARER = b"bearer "
_NONE = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str = "anonymous"
    weight: float = 1.0
    max_lane: Lane = Lane.INTERACTIVE
    default_lane: Lane | None = None
    trust_headers: bool = False
    business_type: str = ""


class Tenants:
    """Made once for each configuration."""

    def __init__(self, tenants: tuple[TenantSettings, ...], anonymous: AnonymousSettings) -> None:
        self.anonymous = Tenant(
            weight=anonymous.weight, max_lane=anonymous.max_lane, trust_headers=anonymous.trust_headers
        )
        self.names: frozenset[str] = frozenset(one.name for one in tenants) | {self.anonymous.name}
        """All that can come out, for the metrics."""
        self._allows_anonymous = anonymous.allow
        self._by_name = {one.name: _tenant(one) for one in tenants}
        self._by_prefix: dict[bytes, tuple[tuple[bytes, Tenant], ...]] = {}
        for one in tenants:
            for written in one.key_sha256:
                digest = bytes.fromhex(written)
                prefix = digest[:_PREFIX_BYTES]
                others = self._by_prefix.get(prefix, _NONE)
                self._by_prefix[prefix] = (*others, (digest, self._by_name[one.name]))

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant:
        """The tenant of a request with these headers (lower-case names); `Refused` with a 401 where there is none for it."""
        if not self._by_name:
            return self.anonymous
        key = key_in(headers)
        if not key:
            if self._allows_anonymous:
                return self.anonymous
            raise Refused(
                Refusal.UNAUTHORIZED, "No API key was given; send it as `Authorization: Bearer <key>`"
            )
        digest = sha256(key).digest()
        for stored, tenant in self._by_prefix.get(digest[:_PREFIX_BYTES], _NONE):
            if compare_digest(stored, digest):
                return tenant
        raise Refused(Refusal.UNAUTHORIZED, "The API key is not valid here")

    def acting_for(self, client: Tenant, name: str) -> Tenant:
        """Whose share a request of `client` uses that names a tenant: that one's if the client is trusted and there is one of that name.

        What the client may do stays its own: neither its ceiling nor its trust grows.
        """
        if not name or not client.trust_headers or name == client.name:
            return client
        named = self._by_name.get(name)
        if named is None:
            return client
        return Tenant(
            name=named.name,
            weight=named.weight,
            max_lane=max(client.max_lane, named.max_lane, key=RANK.__getitem__),
            default_lane=named.default_lane,
            trust_headers=True,
            business_type=named.business_type,
        )


def _tenant(settings: TenantSettings) -> Tenant:
    return Tenant(
        name=settings.name,
        weight=settings.weight,
        max_lane=settings.max_lane,
        default_lane=settings.default_lane,
        trust_headers=settings.trust_headers,
        business_type=settings.business_type,
    )


def without_credentials(pairs: Sequence[tuple[bytes, bytes]], key: bytes) -> list[tuple[bytes, bytes]]:
    """Headers less those that may hold a key, and those that hold this one."""
    is_told = len(key) >= LEAST_KEY_BYTES
    return [pair for pair in pairs if pair[0] not in CREDENTIAL_HEADERS and not (is_told and key in pair[1])]


def without_keys(query: str, key: bytes) -> str:
    """A query less the members that may hold a key, and those that hold this one; what stays is as it was written."""
    told = key.decode("latin-1") if len(key) >= LEAST_KEY_BYTES else None
    kept = []
    for part in query.split("&"):
        if unquote_plus(part.partition("=")[0]).strip().lower() in _KEY_MEMBERS:
            continue
        if told is not None and (told in part or told in unquote_plus(part, "latin-1")):
            continue
        kept.append(part)
    return "&".join(kept)


def key_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key in them; empty where there is none. A scheme other than Bearer is none of this gateway's."""
    keys: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in KEY_HEADERS:
            continue
        if name == b"authorization":
            if value[:7].lower() != _BEARER:
                continue
            value = value[7:]
        keys.setdefault(name, value.strip())
    return keys.get(b"authorization") or keys.get(b"x-api-key") or keys.get(b"api-key") or b""
