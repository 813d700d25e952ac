"""What a soak plays on: engines, Redis and one gateway, all on loopback, each ended by its own pid."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.bench.children import ROOT, end, engine_running, free_port, get, wait_ready
from tests.bench.faults.fleet import free_ports
from tests.bench.process_tree import kinds_of_descriptors, open_descriptors, resident_bytes, sockets
from tests.bench.soak import page
from tests.bench.soak.clock import WallClock
from tests.bench.soak.configuration import files
from tests.bench.soak.engines import Engine
from tests.bench.soak.machine import GATEWAY, REDIS
from tests.redis_server import TcpServer, tcp_server

ENGINES = 4


class Stage:
    def __init__(self, scratch: Path, redis: TcpServer, engines: list[Engine], flood_port: int) -> None:
        self.redis = redis
        self.engines = engines
        self.clock = WallClock(scratch)
        self.port = free_port()
        named = [(engine.name, engine.port) for engine in engines]
        self.files = files(self.port, redis.url, named, flood_port)
        self.errors = scratch / "gateway.log"
        """What the gateway wrote beside its log of requests."""
        self._file = scratch / "headrace.yaml"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._file.write_text(self.files["whole"])
        argv = ["env", *self.clock.environment, sys.executable, "-m", "gateway"]
        argv += ["serve", "--config", str(self._file)]
        with self.errors.open("wb") as sink:
            self._process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=sink, stdin=subprocess.DEVNULL, cwd=ROOT
            )
        wait_ready(self.gateway, self.port, "/readyz")

    def close(self) -> None:
        if self._process is not None:
            end(self._process)
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def gateway(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def processes(self) -> dict[str, int]:
        """Those whose answers have a bound on their time."""
        pids = {engine.name: engine.pid for engine in self.engines}
        return {**pids, GATEWAY: self.gateway.pid, REDIS: self.redis.pid}

    def reload(self, name: str) -> None:
        self._file.write_text(self.files[name])
        self.gateway.send_signal(signal.SIGHUP)

    def page(self) -> str:
        return get(self.port, "/metrics")[1].decode()

    def levels(self) -> dict[str, float]:
        """Without connections to Redis, of which there are by right more or fewer from one time to the next (`store_connections`)."""
        pid = self.gateway.pid
        return {
            "descriptors": float(open_descriptors(pid) - self.store_connections()),
            "established sockets": float(
                sum(one.is_established and one.peer_port != self.redis.port for one in sockets(pid))
            ),
            **page.levels(self.page()),
            "requests in the engines": sum(engine.running() for engine in self.engines),
        }

    def store_connections(self) -> int:
        """Dead ones too."""
        return sum(one.peer_port == self.redis.port for one in sockets(self.gateway.pid))

    def kinds_of_descriptors(self) -> Counter[str]:
        return kinds_of_descriptors(self.gateway.pid)

    def resident_mb(self) -> float:
        return resident_bytes(self.gateway.pid) / 1e6


@contextlib.contextmanager
def stage_running(scratch: Path) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(tcp_server("--maxmemory", "256mb"))
        engines = [
            Engine(f"engine-{number}", port, number, scratch)
            for number, port in enumerate(free_ports(ENGINES))
        ]
        for engine in engines:
            stack.callback(engine.close)
            engine.start()
        flood_port, _ = stack.enter_context(engine_running(scratch / "flood.log", step_ms=5, groups=4))
        found = Stage(scratch, redis, engines, flood_port)
        stack.callback(found.close)
        found.start()
        yield found
