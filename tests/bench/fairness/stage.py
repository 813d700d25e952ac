"""The fleet and the gateway of this benchmark, each process ended by its own pid.

Four emulated engines of batch 8 with 110 ms + 5.25 ms per sequence for 20 tokens, hence some 200 such answers per second together, with prefix caching off so
that every prompt token counts in full. The gateway knows them as one pool with a window of a batch per engine; all else is at its default,
but for the request log, which is off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.children import free_port, running
from tests.bench.fairness.tenants import MODEL, Tenant

ENGINES = 4
BATCH = 8
BASE_MS = 110.0
SLOPE_MS = 5.25
_IDLE_SECONDS = 60.0
_HEADRACE = (sys.executable, "-m", "gateway")


@contextlib.contextmanager
def fleet_running(scratch: Path) -> Iterator[list[int]]:
    """The engines' ports."""
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(ENGINES):
            port = free_port()
            argv = [*_HEADRACE, "engine", "--port", str(port), "--model", MODEL, "--seed", str(number)]
            argv += ["--max-num-seqs", str(BATCH), "--base-ms", str(BASE_MS), "--slope-ms", str(SLOPE_MS)]
            argv += ["--no-prefix-caching", "--keep-alive-seconds", str(_IDLE_SECONDS)]
            stack.enter_context(running(argv, port, "/health", scratch / f"engine-{number}.log"))
            ports.append(port)
        yield ports


@contextlib.contextmanager
def gateway_running(scratch: Path, engines: Sequence[int], tenants: Sequence[Tenant]) -> Iterator[int]:
    """The port of a gateway that has seen nobody yet."""
    port = free_port()
    file = scratch / f"headrace-{port}.yaml"
    file.write_text(json.dumps(configuration(port, engines, tenants), indent=1))  # JSON is YAML
    argv = [*_HEADRACE, "serve", "--config", str(file)]
    with running(argv, port, "/readyz", scratch / f"headrace-{port}.log"):
        yield port


def configuration(port: int, engines: Sequence[int], tenants: Sequence[Tenant]) -> dict[str, object]:
    return {
        "server": {"host": "127.0.0.1", "port": port},
        "pools": [
            {
                "name": "fleet",
                "window": {"start": BATCH, "min": BATCH // 4, "max": BATCH},
                "backends": [{"url": f"http://127.0.0.1:{engine}"} for engine in engines],
            }
        ],
        "tenants": [
            {
                "name": one.name,
                "weight": one.weight,
                "key_sha256": [hashlib.sha256(one.key.encode()).hexdigest()],
            }
            for one in tenants
        ],
        "anonymous": {"allow": False},
        "log": {"requests": False},
    }
