"""The gateway in front of real engines, as a child process without a configuration file."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.engine.processes import ServerProcess, answers_ok, free_port

START_SECONDS = 30
STOP_SECONDS = 10


@contextmanager
def running_gateway(engine_urls: Sequence[str], log: Path) -> Iterator[str]:
    """Its URL; all engines are in one pool."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gateway", "serve", "--host", "127.0.0.1", "--port", str(port)]
    for engine_url in engine_urls:
        command += ["--backend", engine_url]
    server = ServerProcess(command, log)
    try:
        server.wait_until(lambda: answers_ok(f"{url}/readyz"), START_SECONDS)
        yield url
    finally:
        server.stop(STOP_SECONDS)
