"""From `sessions.redis_url` to a client of Redis or Valkey.

| scheme | what stands behind it |
|---|---|
| `redis://[user:password@]host[:port][/db]` | one server |
| `unix:///path` | one server on this machine |
| `redis+sentinel://[user:password@]host:port,host:port/service` | the master that these Sentinels name |
| `redis+cluster://[user:password@]host:port,host:port` | a cluster that these nodes know |

`rediss` in place of `redis` is TLS. User and password are those of the servers; the Sentinels' own is `sessions.sentinel_password`. They may be percent-encoded.
`BadRedisUrl` says what is wrong without showing what may be a password. Nothing is connected here.

A server that was away, or that ends idle connections, leaves dead ones in the pool, which may be asked much later: a command whose connection is lost is sent once more,
on a new one. All that `gateway.sessions.redis_store` sends may be done twice. How long an answer is waited for, and whether a command that was not answered
is sent again, is decided by who calls (`gateway.sessions.guarded_store`, `gateway.sessions.write_behind`). A cluster's may follow a slot that moved.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

_SCHEMES = frozenset(
    {"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}
)
_OPTIONS = re.compile(r"(?:db=[0-9]{1,5})?")
_DATABASE = re.compile(r"/?[0-9]{0,5}")
PROTOCOL = 2
"""With 3, release 8.1 of the package asks for notes of maintenance, and then no longer looks whether a connection of its pool is dead or holds an answer to somebody else."""
_PORTS = {"sentinel": 26379, "cluster": 6379}


class BadRedisUrl(ValueError):
    pass


class RedisAddress:
    """`nodes` are host and port; `service` is a Sentinel's name for its master."""

    def __init__(self, url: str) -> None:
        scheme, separator, _ = url.partition("://")
        if not separator or scheme not in _SCHEMES:
            raise BadRedisUrl(f"has no scheme that is known; allowed: {', '.join(sorted(_SCHEMES))}")
        self.is_tls = scheme.startswith("rediss")
        self.kind = scheme.partition("+")[2] or "server"
        self.url = url
        try:
            parts = urlsplit(url)
        except ValueError:
            raise BadRedisUrl("is not a URL; redis://host:6379 is one") from None
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        self.username = unquote(user) or None
        self.password = unquote(password) or None
        self.service = parts.path.strip("/")
        default_port = _PORTS.get(self.kind, 6379)
        self.nodes = [_node(host, default_port) for host in hosts.split(",")] if scheme != "unix" else []
        if parts.fragment or not _OPTIONS.fullmatch(parts.query):
            raise BadRedisUrl("has options that are not known; of those only db=NUMBER is")
        if self.kind == "server" and scheme != "unix" and not _DATABASE.fullmatch(parts.path):
            raise BadRedisUrl("names a database that is no number; redis://host:6379/0 is right")
        if scheme == "unix" and not parts.path:
            raise BadRedisUrl("has no path; unix:///run/redis.sock has one")
        if self.kind == "server" and len(self.nodes) > 1:
            raise BadRedisUrl("names several hosts; redis+sentinel:// and redis+cluster:// take several")
        if self.kind == "sentinel" and not self.service:
            raise BadRedisUrl("does not name the master; redis+sentinel://host:26379/mymaster does")


def client(address: RedisAddress, connect_seconds: float, ca_file: str, sentinel_password: str) -> Any:
    """`redis.asyncio.Redis` or `RedisCluster`."""
    import redis.asyncio as redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as LostConnection

    options: dict[str, Any] = {
        "socket_timeout": None,  # who calls has more patience with a process that was busy meanwhile
        "socket_connect_timeout": connect_seconds,
        "client_name": "headrace",
        "retry": Retry(NoBackoff(), 1, supported_errors=(LostConnection,)),
        "protocol": PROTOCOL,
    }
    if not address.url.startswith("unix:"):
        options["socket_keepalive"] = True
    login: dict[str, Any] = {"username": address.username, "password": address.password}
    tls: dict[str, Any] = {}
    if address.is_tls:
        tls = {"ssl": True, "ssl_ca_certs": ca_file or None}
    if address.kind == "cluster":
        from redis.asyncio.cluster import ClusterNode

        options["retry"] = Retry(NoBackoff(), 2)
        nodes = [ClusterNode(host, port) for host, port in address.nodes]
        return redis.RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options, **login, **tls)
    if address.kind == "sentinel":
        from redis.asyncio.sentinel import Sentinel

        about_sentinels = {**options, **tls, "password": sentinel_password or None}
        make_sentinel: Any = Sentinel  # has no types
        sentinel = make_sentinel(address.nodes, sentinel_kwargs=about_sentinels, **options, **login, **tls)
        return sentinel.master_for(address.service)
    if address.is_tls and ca_file:
        options["ssl_ca_certs"] = ca_file
    return redis.Redis.from_url(address.url, **options)


def _node(text: str, default_port: int) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if text.rpartition(":")[2].isdigit() else (text, "", "")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise BadRedisUrl(
            "has a port that is no number; / # ? @ and : of a password have to be percent-encoded"
        )
    host = host.strip("[]")
    if not host:
        raise BadRedisUrl("has an empty host; host:port is needed")
    number = int(port) if port else default_port
    if not 0 < number < 65536:
        raise BadRedisUrl("has a port that is out of range; allowed: 1 to 65535")
    return host, number
