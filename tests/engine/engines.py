"""The two real engines: how each is brought up, and what it tells about its load.

An engine comes from `deploy/engines/engine.sh`, which installs it first when needed. With
`HEADRACE_VLLM_URL` or `HEADRACE_SGLANG_URL` in the environment the engine running there is used
instead, and neither installed nor stopped; it must serve the same tiny model under the name `tiny`.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.engine.processes import ServerProcess, answers_ok, free_port

EngineName = Literal["vllm", "sglang"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
MODEL = "tiny"

SCRIPT = Path(__file__).parents[2] / "deploy" / "engines" / "engine.sh"
# Download and unpacking of 3 GB took 2 to 3 minutes where it was measured.
INSTALL_SECONDS = 900
# Measured: 21 s idle, 145 s on a busy machine.
START_SECONDS = 240
# vLLM waits for clients for ever; by now all are closed and it ends in 1 to 5 s.
STOP_SECONDS = 15


@dataclass(frozen=True)
class Engine:
    name: EngineName
    url: str


@dataclass(frozen=True)
class Load:
    """What the engine itself counts: requests it has now, and requests it ever ran to their end.

    SGLang counts a request among the aborted a moment before it counts it at all, so that `completed`
    can be too small by the requests just aborted; it is never too large.
    """

    running: int
    waiting: int
    completed: int


@contextmanager
def running_engine(name: EngineName, log: Path) -> Iterator[Engine]:
    given = os.environ.get(f"HEADRACE_{name.upper()}_URL")
    if given:
        yield Engine(name, given.rstrip("/"))
        return
    subprocess.run([SCRIPT, name, "install"], check=True, timeout=INSTALL_SECONDS)
    port = free_port()
    server = ServerProcess([SCRIPT, name, "serve", str(port), MODEL], log)
    try:
        url = f"http://127.0.0.1:{port}"
        # Not `engine.sh check`: to it a server that ended is there until this process, its parent, asks.
        server.wait_until(lambda: answers_ok(f"{url}/health"), START_SECONDS)
        yield Engine(name, url)
    finally:
        server.stop(STOP_SECONDS)


class OwnVllm:
    """A vLLM that belongs to one test, with a small KV cache or flags of its own, and can be started anew at its address."""

    def __init__(self, log: Path, kv_blocks: int | None = None, flags: Sequence[str] = ()) -> None:
        subprocess.run([SCRIPT, "vllm", "install"], check=True, timeout=INSTALL_SECONDS)
        self._log = log
        self._environment = {} if kv_blocks is None else {"VLLM_KV_BLOCKS": str(kv_blocks)}
        self._flags = flags
        self._port = free_port()
        self._server: ServerProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = ServerProcess(
            [SCRIPT, "vllm", "serve", str(self._port), MODEL, *self._flags], self._log, self._environment
        )

    def wait(self, limit_seconds: float = START_SECONDS) -> None:
        """Until it is healthy."""
        assert self._server is not None
        self._server.wait_until(lambda: answers_ok(f"{self.url}/health"), limit_seconds)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(STOP_SECONDS)
            self._server = None


async def read_load(client: httpx.AsyncClient, engine: Engine) -> Load:
    samples = _samples((await client.get(f"{engine.url}/metrics")).raise_for_status().text)
    if engine.name == "vllm":
        return Load(
            running=_total(samples, "vllm:num_requests_running"),
            waiting=_total(samples, "vllm:num_requests_waiting"),
            completed=_total(samples, "vllm:request_success_total", finished_reason={"stop", "length"}),
        )
    # The gauges in SGLang's /metrics lag by up to 40 steps; /v1/loads is the moment's count.
    ranks = (await client.get(f"{engine.url}/v1/loads")).raise_for_status().json()["loads"]
    return Load(
        running=sum(rank["num_running_reqs"] for rank in ranks),
        waiting=sum(rank["num_waiting_reqs"] for rank in ranks),
        completed=_total(samples, "sglang:num_requests_total")
        - _total(samples, "sglang:num_aborted_requests_total"),
    )


def _samples(metrics: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]


def _total(samples: list[Sample], name: str, **allowed: set[str]) -> int:
    """The sum of a metric's series, of those alone whose labels have an allowed value."""
    return int(
        sum(
            sample.value
            for sample in samples
            if sample.name == name and all(sample.labels[label] in ok for label, ok in allowed.items())
        )
    )
