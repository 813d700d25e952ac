"""The emulated engines of a soak, a process each, so that each can be frozen and killed by its own pid."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.children import ROOT, end, get, wait_ready
from tests.bench.soak.configuration import MODEL
from tests.bench.soak.page import total

HEALTHY: Mapping[str, Any] = {
    "slow": 1,
    "silent": False,
    "reset": None,
    "stall": None,
    "cut": None,
    "error": False,
    "error_event": None,
    "unhealthy": False,
    "share": 1,
}
_SHAPE = ("--max-num-seqs", "16", "--base-ms", "120", "--slope-ms", "5")


class Engine:
    """Blocks while it starts or is told something: for a thread."""

    def __init__(self, name: str, port: int, seed: int, scratch: Path) -> None:
        self.name = name
        self.port = port
        self._argv = [sys.executable, "-m", "gateway", "engine", "--port", str(port), "--model", MODEL]
        self._argv += ["--seed", str(seed), *_SHAPE]
        self._log = scratch / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._argv, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=ROOT
            )
        wait_ready(self._process, self.port, "/health")

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            end(self._process)

    def freeze(self) -> None:
        self._living.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._living.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._living.kill()
        self._living.wait()

    def switch(self, faults: Mapping[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            body = json.dumps(dict(faults))
            connection.request("POST", "/emulator/faults", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            told = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{self.name} refused {body}: {told!r}")

    def running(self) -> float:
        """Sequences in it."""
        page = get(self.port, "/metrics")[1].decode()
        return sum(total(page, f"vllm:num_requests_{state}") or 0.0 for state in ("running", "waiting"))

    @property
    def pid(self) -> int:
        return self._living.pid

    @property
    def _living(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process
