"""Engines that are only watched: each answers the pages that probes read, its metrics with a real page of vLLM, and a DCGM exporter's page at `/gpu`.

    python -m tests.bench.probe_pages --port P1 --port P2 ...

The metrics page is a capture of vLLM 0.32 under load, with the model's name as long as those of real deployments are, which makes at least `PAGE_BYTES` of it.
A page is sent in one write, as uvicorn does. Answers are made before anything is measured: the servers cost next to nothing. `/count` says how often each page was asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections import Counter
from functools import cache

import uvloop

from tests.captures import FIXTURES, split_answer

PAGE_BYTES = 100_000
_CAPTURE = "vllm-0.32.0/metrics-busy.http"
_CAPTURED_MODEL = b'model_name="tiny"'
_MODEL = (
    b"/root/.cache/huggingface/hub/models--Qwen--Qwen2.5-72B-Instruct-GPTQ-Int4/snapshots/"
    b"5d8c6b0f1e2a39478d6c5b4a3f2e1d0c9b8a7f6e"
)
_GPUS = 8
_DCGM_NAMES = (
    (b"SM_CLOCK", 1980), (b"MEM_CLOCK", 2619), (b"MEMORY_TEMP", 61), (b"GPU_TEMP", 58), (b"POWER_USAGE", 612), (b"TOTAL_ENERGY_CONSUMPTION", 7_123_456_789),
    (b"PCIE_REPLAY_COUNTER", 0), (b"GPU_UTIL", 93), (b"MEM_COPY_UTIL", 47), (b"ENC_UTIL", 0), (b"DEC_UTIL", 0), (b"XID_ERRORS", 0), (b"FB_FREE", 9321),
    (b"FB_USED", 71_588), (b"FB_RESERVED", 651), (b"UNCORRECTABLE_REMAPPED_ROWS", 0), (b"CORRECTABLE_REMAPPED_ROWS", 0), (b"ROW_REMAP_FAILURE", 0),
    (b"NVLINK_BANDWIDTH_TOTAL", 0), (b"VGPU_LICENSE_STATUS", 0),
)  # fmt: skip
"""The default set of dcgm-exporter, with a value of each."""


@cache
def vllm_page() -> bytes:
    _, page = split_answer((FIXTURES / _CAPTURE).read_bytes())
    return page.replace(_CAPTURED_MODEL, b'model_name="%b"' % _MODEL)


@cache
def dcgm_page() -> bytes:
    lines = []
    for name, value in _DCGM_NAMES:
        lines.append(b"# HELP DCGM_FI_DEV_%b As DCGM names it.\n# TYPE DCGM_FI_DEV_%b gauge\n" % (name, name))
        for gpu in range(_GPUS):
            labels = (
                b'gpu="%d",UUID="GPU-0b4c1d2e-3f40-5162-7384-95a6b7c8d9e%d",pci_bus_id="00000000:%02X:00.0",device="nvidia%d",modelName="NVIDIA H100 80GB HBM3",'
                b'Hostname="node-1",DCGM_FI_DRIVER_VERSION="570.86.15"' % (gpu, gpu, 16 * gpu + 1, gpu)
            )
            lines.append(b"DCGM_FI_DEV_%b{%b} %d\n" % (name, labels, value))
    return b"".join(lines)


def _answer(body: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        kind,
        len(body),
        body,
    )


def _answers() -> dict[bytes, bytes]:
    text = b"text/plain; version=1.0.0; charset=utf-8"
    return {
        b"/version": _answer(b'{"version":"0.32.0"}'),
        b"/health": _answer(b""),
        b"/v1/models": _answer(b'{"object":"list","data":[{"id":"m","object":"model"}]}'),
        b"/metrics": _answer(vllm_page(), kind=text),
        b"/gpu": _answer(dcgm_page(), kind=text),
    }


class _Connection(asyncio.Protocol):
    def __init__(self, answers: dict[bytes, bytes], asked: Counter[str]) -> None:
        self._answers = answers
        self._asked = asked
        self._unread = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # as it is of TCP, though uvloop's class does not say so

    def data_received(self, data: bytes) -> None:
        head, end, self._unread = (self._unread + data).partition(b"\r\n\r\n")
        if not end:
            self._unread = head
            return
        path = head.split(b" ", 2)[1]
        if path == b"/count":
            self._transport.write(_answer(json.dumps(self._asked).encode()))
            return
        self._asked[path.decode()] += 1
        self._transport.write(self._answers.get(path) or _answer(b"{}", b"404 Not Found"))


async def _serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    answers, asked = _answers(), Counter[str]()
    servers = [
        await loop.create_server(lambda: _Connection(answers, asked), "127.0.0.1", port) for port in ports
    ]
    await ended.wait()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.probe_pages")
    parser.add_argument("--port", type=int, action="append", required=True)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
