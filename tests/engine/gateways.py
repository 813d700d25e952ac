"""The gateway in front of real engines, as a child process."""

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
    with _serving([part for engine_url in engine_urls for part in ("--backend", engine_url)], log) as url:
        yield url


@contextmanager
def configured_gateway(configuration: str, log: Path) -> Iterator[str]:
    """Its URL. The YAML is written beside the log."""
    file = log.with_suffix(".yaml")
    file.write_text(configuration)
    with _serving(["--config", str(file)], log) as url:
        yield url


@contextmanager
def _serving(arguments: Sequence[str], log: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gateway", "serve", "--host", "127.0.0.1", "--port", str(port)]
    server = ServerProcess([*command, *arguments], log)
    try:
        server.wait_until(lambda: answers_ok(f"{url}/readyz"), START_SECONDS)
        yield url
    finally:
        server.stop(STOP_SECONDS)
