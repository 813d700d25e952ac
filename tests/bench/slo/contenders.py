"""Who stands in front of the fleet: Headrace, and what else is commonly put there, each as its makers mean it to be run.

- `headrace`: the configuration of `configuration`; `headrace-untagged` is the same without the clients' headers.
- `haproxy`: leastconn with `maxconn` of a batch per engine, so that it queues instead of the engines; whoever has waited for
  `QUEUE_TIMEOUT_MS`, the longest of the targets, gets 503. `haproxy-impatient` lets nobody wait longer than `IMPATIENT_MS`: what
  is left of the tightest target beside a full batch, for an operator who has worked that out for this very fleet and load.
- `smg` and `vllm-router`: power of two choices, everything else at its default; `-round-robin` and `-cache-aware` the other policies.

None writes a line per request, and none but Headrace knows of targets. A peer that cannot be had is left out and named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.children import free_port
from tests.bench.peers import (
    BENCH_HOME,
    AbsentError,
    from_pypi,
    haproxy_path,
    haproxy_version,
    headrace_version,
    version_from_pypi,
)
from tests.bench.release_python import release_python
from tests.bench.slo.configuration import configuration
from tests.bench.slo.fleet import Engine
from tests.bench.slo.requests import Tags

QUEUE_TIMEOUT_MS = 1000
IMPATIENT_MS = 50


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    tags: Tags
    ready_path: str
    version: Callable[[], str]
    command: Callable[[int, Sequence[Engine], Path], list[str]]
    """(own port, engines, directory of its own) -> argv"""


def headrace(
    name: str, tags: Tags, configured: Callable[[int, Sequence[Engine]], dict[str, object]]
) -> Contender:
    """With the configuration that `configured` makes for its port and engines."""

    def command(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
        file = home / "headrace.yaml"
        file.write_text(json.dumps(configured(port, engines), indent=1))  # JSON is YAML
        return [release_python(BENCH_HOME)[0], "-m", "gateway", "serve", "--config", str(file)]

    return Contender(name, tags, "/readyz", headrace_version, command)


def _haproxy(queue_timeout_ms: int) -> Callable[[int, Sequence[Engine], Path], list[str]]:
    def command(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
        servers = "\n".join(
            f"  server {engine.pool.name}-{engine.port} 127.0.0.1:{engine.port} maxconn {engine.pool.max_num_seqs} check"
            for engine in engines
        )
        file = home / "haproxy.cfg"
        file.write_text(f"""global
  maxconn 9800
  nbthread 1
defaults
  mode http
  option http-keep-alive
  option abortonclose
  option redispatch
  http-reuse always
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout http-keep-alive 60s
  timeout queue {queue_timeout_ms}ms
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend engines
backend engines
  balance leastconn
  option httpchk GET /health
{servers}
""")
        return [haproxy_path(), "-db", "-f", str(file)]

    return command


def _rust_router(
    distribution: str, argv: Sequence[str], policy: str, log_level: str
) -> Callable[[int, Sequence[Engine], Path], list[str]]:
    def command(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
        return [
            from_pypi(distribution, argv[0]),
            *argv[1:],
            "--worker-urls",
            *(engine.url for engine in engines),
            *("--policy", policy, "--host", "127.0.0.1", "--port", str(port)),
            *("--prometheus-port", str(free_port()), "--log-level", log_level),
        ]

    return command


def _smg(suffix: str, policy: str) -> Contender:
    command = _rust_router("sglang-router", ("smg", "launch"), policy, "warn")
    return Contender(
        f"smg{suffix}", Tags.NONE, "/health", lambda: version_from_pypi("sglang-router", "smg"), command
    )


def _vllm_router(suffix: str, policy: str) -> Contender:
    command = _rust_router("vllm-router", ("vllm-router",), policy, "warning")
    found = lambda: version_from_pypi("vllm-router", "vllm-router")  # noqa: E731
    return Contender(f"vllm-router{suffix}", Tags.NONE, "/health", found, command)


CONTENDERS = {
    contender.name: contender
    for contender in (
        headrace("headrace", Tags.HEADERS, configuration),
        headrace("headrace-untagged", Tags.TEXT, configuration),
        Contender("haproxy", Tags.NONE, "/health", haproxy_version, _haproxy(QUEUE_TIMEOUT_MS)),
        Contender("haproxy-impatient", Tags.NONE, "/health", haproxy_version, _haproxy(IMPATIENT_MS)),
        _smg("", "power_of_two"),
        _smg("-round-robin", "round_robin"),
        _smg("-cache-aware", "cache_aware"),
        _vllm_router("", "power_of_two"),
        _vllm_router("-round-robin", "round_robin"),
        _vllm_router("-cache-aware", "cache_aware"),
    )
}
DEFAULT = ("headrace", "headrace-untagged", "haproxy", "haproxy-impatient", "vllm-router", "smg")


def present(contenders: Iterable[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """Those that can run here, installed if need be, and why the others cannot."""
    found, absent = [], {}
    for contender in contenders:
        try:
            contender.version()
            found.append(contender)
        except AbsentError as error:
            absent[contender.name] = str(error)
    return found, absent
