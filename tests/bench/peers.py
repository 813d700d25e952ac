"""What is measured and against what: Headrace, and other proxies installed and set up the way their makers mean them to run.

Peers are extras of the benchmark and never a dependency of the project. `smg` (PyPI `sglang-router`, round robin) and `vllm-router`
go into `.bench/venv` on first use; nginx and haproxy are used where they are installed and fetched with apt when the benchmark runs as root.
A peer that cannot be had is reported as absent. All run without a log line per request; `headrace-logged` writes them to a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.bench.children import ROOT, environment_without_python_settings, free_port, running
from tests.bench.release_python import release_python

BENCH_HOME = ROOT / ".bench"
INSTALL_SECONDS = 300


class AbsentError(Exception):
    """The peer is not installed and cannot be installed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    ready_path: str
    version: Callable[[], str]
    command: Callable[[int, int, Path], list[str]]
    """(own port, engine's port, scratch directory) -> argv"""


@contextlib.contextmanager
def peer_running(peer: Peer, engine_port: int, scratch: Path) -> Iterator[tuple[int, int]]:
    """A ready peer in front of the engine: (port, pid)."""
    port = free_port()
    home = scratch / f"{peer.name}-{port}"
    home.mkdir()
    with running(peer.command(port, engine_port, home), port, peer.ready_path, home / "output.log") as pid:
        yield port, pid


def available(names: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """The peers that can run here, installing them if need be, and for the others why not."""
    ready, absent = [], {}
    for name in names:
        try:
            PEERS[name].version()
            ready.append(PEERS[name])
        except AbsentError as error:
            absent[name] = str(error)
    return ready, absent


def headrace_version() -> str:
    return f"{version('headrace')} ({release_python(BENCH_HOME)[1]})"


def _headrace(port: int, engine_port: int, home: Path) -> list[str]:
    return [*_headrace_logged(port, engine_port, home), "--no-request-log"]


def _headrace_logged(port: int, engine_port: int, home: Path) -> list[str]:
    python, _ = release_python(BENCH_HOME)
    argv = [python, "-m", "gateway", "serve", "--backend", f"http://127.0.0.1:{engine_port}"]
    return [*argv, "--host", "127.0.0.1", "--port", str(port)]


def _smg(port: int, engine_port: int, home: Path) -> list[str]:
    argv = [from_pypi("sglang-router", "smg"), "launch", "--worker-urls", f"http://127.0.0.1:{engine_port}"]
    argv += [
        "--policy",
        "round_robin",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--prometheus-port",
        str(free_port()),
    ]
    return [*argv, "--log-level", "warn"]


def _vllm_router(port: int, engine_port: int, home: Path) -> list[str]:
    argv = [from_pypi("vllm-router", "vllm-router"), "--worker-urls", f"http://127.0.0.1:{engine_port}"]
    argv += [
        "--policy",
        "round_robin",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--prometheus-port",
        str(free_port()),
    ]
    return [*argv, "--log-level", "warning"]


def _nginx(port: int, engine_port: int, home: Path) -> list[str]:
    limit = 16_000
    as_root = "user root;\n" if os.geteuid() == 0 else ""
    scratch = "\n  ".join(
        f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "nginx.conf").write_text(f"""{as_root}daemon off;
worker_processes 1;
worker_rlimit_nofile {limit};
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections {limit}; }}
http {{
  {scratch}
  access_log off;
  client_max_body_size 32m;
  client_body_buffer_size 1m;
  keepalive_requests 100000000;
  upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 1024; keepalive_requests 100000000; keepalive_timeout 4s; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
""")
    return [nginx_path(), "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]


def nginx_path() -> str:
    return _from_apt("nginx", "nginx-light")


def haproxy_path() -> str:
    return _from_apt("haproxy", "haproxy")


def _from_apt(command: str, package: str) -> str:
    """The path of `command`, installed with apt if it is not there and the benchmark runs as root."""
    if path := _system_path(command):
        return path
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise AbsentError(f"{command} is not installed (apt-get install {package})")
    print(f"installing {package} with apt ...", file=sys.stderr)
    environment = {
        **os.environ,
        "DEBIAN_FRONTEND": "noninteractive",
        "RUNLEVEL": "1",
    }  # runlevel 1: do not start the service
    argv = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    done = subprocess.run(argv, env=environment, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    path = _system_path(command)
    if done.returncode or not path:
        raise AbsentError(f"apt could not install {package}: {done.stderr.decode()[-200:].strip()}")
    return path


def _system_path(command: str) -> str | None:
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def nginx_version() -> str:
    shown = subprocess.run([nginx_path(), "-v"], capture_output=True, check=True, text=True)
    return re.sub(r".*nginx/", "", shown.stderr + shown.stdout).strip()


def haproxy_version() -> str:
    shown = subprocess.run([haproxy_path(), "-v"], capture_output=True, check=True, text=True)
    return shown.stdout.split()[2]


def from_pypi(distribution: str, command: str) -> str:
    """The path of `command`, installed from PyPI into the benchmark's own environment if it is not there yet."""
    path = BENCH_HOME / "venv" / "bin" / command
    if path.exists():
        return str(path)
    print(f"installing {distribution} into {BENCH_HOME.name}/venv ...", file=sys.stderr)
    python = BENCH_HOME / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(BENCH_HOME / "venv", with_pip=True)
    argv = [str(python), "-m", "pip", "install", "-q", distribution]
    environment = environment_without_python_settings()
    done = subprocess.run(argv, env=environment, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode or not path.exists():
        raise AbsentError(f"pip could not install {distribution}: {done.stderr.decode()[-200:].strip()}")
    return str(path)


def version_from_pypi(distribution: str, command: str) -> str:
    from_pypi(distribution, command)
    script = f"from importlib.metadata import version; print(version({distribution!r}))"
    python = BENCH_HOME / "venv" / "bin" / "python"
    return subprocess.run([python, "-c", script], capture_output=True, check=True, text=True).stdout.strip()


PEERS = {
    peer.name: peer
    for peer in (
        Peer("headrace", "/readyz", headrace_version, _headrace),
        Peer("headrace-logged", "/readyz", headrace_version, _headrace_logged),
        Peer("smg", "/health", lambda: version_from_pypi("sglang-router", "smg"), _smg),
        Peer("nginx", "/health", nginx_version, _nginx),
        Peer("vllm-router", "/health", lambda: version_from_pypi("vllm-router", "vllm-router"), _vllm_router),
    )
}
