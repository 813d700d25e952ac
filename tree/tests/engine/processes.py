"""Servers as child processes, each in a process group of its own.

A real engine forks workers that outlive their parent when it is killed, so a server is ended
as a group: SIGTERM to the server, a bounded wait, then SIGKILL to whatever is left of the group.
What a server prints goes to a file; the end of that file is part of the message when it fails.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import httpx

SHOWN_LOG_CHARACTERS = 6_000


class ServerFailedError(Exception):
    """A server did not come up; the message holds the end of its log."""


class ServerProcess:
    def __init__(
        self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], limit_seconds: float) -> None:
        """Return once `ready()` holds; raise when the process ends or the time is up."""
        give_up_at = monotonic() + limit_seconds
        while not ready():
            # The pause between two looks is a wait for the process's end, noticed at once.
            with suppress(subprocess.TimeoutExpired):
                raise self.failure(f"ended with status {self._process.wait(0.1)}")
            if monotonic() > give_up_at:
                raise self.failure(f"was not ready after {limit_seconds:.0f} s")

    def failure(self, what: str) -> ServerFailedError:
        text = self._log.read_text(errors="replace")
        return ServerFailedError(
            f"the server {what}; the end of {self._log}:\n{text[-SHOWN_LOG_CHARACTERS:]}"
        )

    def stop(self, grace_seconds: float) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_seconds)
        # The group lives on while any member does, the server itself included.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def answers_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    """A port nobody listens on now. It may be taken before it is used; the server then says so and ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
