"""Who stands in front of the fleet: Headrace, and what else is commonly put there, with retries and health checks on and the same time-outs.

- `haproxy`: leastconn, a health check every second, `observe layer7` so that its traffic's errors count as well, two more tries on another server for whatever may be tried again.
- `nginx`: least_conn, its passive checks (one failure takes a server out, for 2 s in place of 10), two more tries, also of POST.
- `smg` and `vllm-router`: power of two choices; retries and circuit breakers as they come, but with a pause, health checks and time-outs as short as here.

A peer that cannot be had is left out and named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.faults.configuration import (
    CONNECT_SECONDS,
    FIRST_BYTE_SECONDS,
    GAP_SECONDS,
    PROBE_SECONDS,
    SETTINGS,
    configuration,
)
from tests.bench.peers import haproxy_path, haproxy_version, nginx_path, nginx_version
from tests.bench.slo import contenders as known
from tests.bench.slo.contenders import Contender
from tests.bench.slo.fleet import Engine
from tests.bench.slo.requests import Tags

SUBJECT = "headrace"


def _haproxy(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
    check = f"check inter {PROBE_SECONDS:g}s observe layer7 error-limit 5 on-error mark-down"
    servers = "\n".join(f"  server e{engine.port} 127.0.0.1:{engine.port} {check}" for engine in engines)
    file = home / "haproxy.cfg"
    file.write_text(f"""global
  maxconn 9800
  nbthread 1
defaults
  mode http
  option http-keep-alive
  option redispatch 1
  retries 2
  retry-on all-retryable-errors
  http-reuse always
  timeout connect {CONNECT_SECONDS:g}s
  timeout client 60s
  timeout server {FIRST_BYTE_SECONDS:g}s
  timeout check {PROBE_SECONDS:g}s
  timeout queue {FIRST_BYTE_SECONDS:g}s
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend engines
backend engines
  balance leastconn
  option httpchk GET /health
{servers}
""")
    return [haproxy_path(), "-db", "-f", str(file)]


def _nginx(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
    as_root = "user root;\n" if os.geteuid() == 0 else ""
    scratch = "\n  ".join(
        f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    servers = " ".join(f"server 127.0.0.1:{engine.port} max_fails=1 fail_timeout=2s;" for engine in engines)
    file = home / "nginx.conf"
    file.write_text(f"""{as_root}daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections 16000; }}
http {{
  {scratch}
  access_log off;
  client_body_buffer_size 1m;
  upstream engines {{ least_conn; {servers} keepalive 256; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_connect_timeout {CONNECT_SECONDS:g}s;
      proxy_read_timeout {max(FIRST_BYTE_SECONDS, GAP_SECONDS):g}s;
      proxy_next_upstream error timeout http_500 http_502 http_503 http_504 non_idempotent;
      proxy_next_upstream_tries 3;
    }}
  }}
}}
""")
    return [nginx_path(), "-p", str(home), "-c", str(file), "-e", f"{home}/error.log"]


def _with(contender: Contender, *options: str) -> Contender:
    def command(port: int, engines: Sequence[Engine], home: Path) -> list[str]:
        return [*contender.command(port, engines, home), *options]

    return replace(contender, command=command)


_SHORT = (
    *("--health-check-interval-secs", f"{PROBE_SECONDS:.0f}"),
    *("--health-check-timeout-secs", f"{PROBE_SECONDS:.0f}"),
    *("--cb-timeout-duration-secs", f"{SETTINGS['breaker']['open_seconds']:.0f}"),
    *("--request-timeout-secs", f"{FIRST_BYTE_SECONDS:.0f}"),
)

CONTENDERS = {
    contender.name: contender
    for contender in (
        known.headrace(SUBJECT, Tags.NONE, configuration),
        Contender("haproxy", Tags.NONE, "/health", haproxy_version, _haproxy),
        Contender("nginx", Tags.NONE, "/health", nginx_version, _nginx),
        _with(known.CONTENDERS["smg"], *_SHORT),
        _with(known.CONTENDERS["vllm-router"], *_SHORT),
    )
}
