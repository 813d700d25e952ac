"""Starting, waiting for and ending the processes a benchmark needs; each is ended by its own pid, whatever happens."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 30.0
END_SECONDS = 5.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_descriptor_limit() -> int:
    """Lift the soft limit to the hard one; children inherit it. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def get(port: int, path: str) -> tuple[int, bytes]:
    """One GET on loopback: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_ready(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Until GET `path` answers 200. Raises if the process ends first or `READY_SECONDS` pass."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode} before it was ready")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if get(port, path)[0] == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} was not ready on {path} within {READY_SECONDS:.0f} s")


@contextlib.contextmanager
def running(argv: Sequence[str], port: int, ready_path: str, log: Path) -> Iterator[int]:
    """The pid of a ready server process. Its output goes to `log`, whose end is shown when the start fails."""
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=ROOT)
        try:
            try:
                wait_ready(process, port, ready_path)
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{log.read_text(errors='replace')[-2000:]}") from None
            yield process.pid
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL after `END_SECONDS`: a benchmark does not wait for a long drain."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def on_cores(cores: Iterable[int]) -> Iterator[None]:
    """This process, and for good what it starts meanwhile, on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def engine_running(log: Path, *, step_ms: float, groups: int) -> Iterator[tuple[int, int]]:
    """A mock engine in its own process: (port, pid)."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.mock_engine", "--port", str(port), "--step-ms", str(step_ms)]
    argv += ["--groups", str(groups)]
    with running(argv, port, "/health", log) as pid:
        yield port, pid


def environment_without_python_settings() -> dict[str, str]:
    """For tools of another virtual environment."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
