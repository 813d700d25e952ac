"""Field cases of the end of the process: what running and waiting requests and hanging receivers see of it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import client
from tests.backend import Backend, Ending, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, JSON

PLAIN = client.request("POST", CHAT, [JSON], b"{}")
EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'


def configured(folder: Path, backend: Backend, window: int | None = None, **sections: Any) -> GatewayProcess:
    pool: dict[str, Any] = {"name": "p", "backends": [{"url": backend.url}]}
    if window is not None:
        pool["window"] = {"max": window}
    path = folder / "headrace.yaml"
    path.write_text(json.dumps({"pools": [pool], **sections}))
    return GatewayProcess("--config", str(path))


async def test_b131_ten_streams_and_five_plain_calls_end_whole_inside_the_grace_or_are_told(
    tmp_path: Path,
) -> None:
    gates = Gate(), Gate()

    def script(request: Request) -> Script:
        gate = gates[0] if b"first" in request.body else gates[1]
        if b"stream" in request.body:
            return sse_script(EVENT, gate, b"[DONE]")
        return Script(before_head=gate, chunks=[b"{}"])

    async with Backend(script) as backend:
        for number, (run, seconds) in enumerate((("first", 3600), ("second", 0.2))):
            async with configured(tmp_path, backend, server={"drain_seconds": seconds}) as gateway:
                bodies = [{"run": run, **({"stream": True} if n < 10 else {})} for n in range(15)]
                calls = [
                    asyncio.create_task(
                        client.send(
                            gateway.port, client.request("POST", CHAT, [JSON], json.dumps(body).encode())
                        )
                    )
                    for body in bodies
                ]
                await backend.until(lambda number=number: len(backend.exchanges) == 15 * (number + 1))  # type: ignore[misc]
                await backend.until(lambda: sum(one.chunks_sent for one in backend.exchanges[-15:]) >= 10)
                gateway.signal(signal.SIGTERM)
                if run == "first":
                    await until(lambda: b"draining 15 request(s)" in gateway.stderr)
                    gates[0].set()
                answers = await asyncio.gather(*calls)
                assert await gateway.wait() == 0
                for body, answer in zip(bodies, answers, strict=True):
                    if run == "first":
                        assert (answer.status, answer.complete) == (200, True)
                        assert "stream" not in body or answer.body.endswith(b"data: [DONE]\n\n")
                    elif "stream" in body:
                        assert b'"reason":"shutting_down"' in answer.body and not answer.complete
                    else:
                        assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"shutting_down")


async def test_b135_whoever_still_waits_at_the_end_is_told_so_and_reaches_no_engine(tmp_path: Path) -> None:
    async with (
        Backend(lambda _: Script(before_head=Gate())) as backend,
        configured(tmp_path, backend, window=1, server={"drain_seconds": 0.2}) as gateway,
    ):
        connections = [await client.connect(gateway.port) for _ in range(21)]
        for connection in connections:
            await connection.send(PLAIN)
        waits = b"headrace_requests_in_flight 21.0\n"
        while waits not in (await client.send(gateway.port, client.request("GET", "/metrics"))).body:
            pass
        gateway.signal(signal.SIGTERM)
        for connection in connections:
            answer = await connection.read_answer()
            assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"shutting_down")
            assert answer.value(b"retry-after")
            assert await connection.read_until_closed() == b"" and not connection.reset_by_peer
            connection.close()
        assert await gateway.wait() == 0
        assert len(backend.exchanges) == 1


@asynccontextmanager
async def _silence() -> AsyncIterator[int]:
    """A port that takes connections and never says a word."""
    gone = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        gone.set()
        server.close()


async def test_b137_a_receiver_and_a_redis_that_hang_do_not_hold_up_the_end_and_the_log_is_whole(
    tmp_path: Path,
) -> None:
    async with (
        Backend(lambda _: json_script({})) as backend,
        Backend(lambda _: Script(ending=Ending.STOP_READING), record_probes=True) as hole,
        _silence() as redis_port,
        configured(
            tmp_path,
            backend,
            server={"drain_seconds": 0.2},
            sessions={"redis_url": f"redis://127.0.0.1:{redis_port}"},
            alerts={"receivers": [{"url": hole.url, "timeout_seconds": 600}]},
        ) as gateway,
    ):
        force = client.request(
            "POST", "/admin/rules/batch-idle", [JSON], b'{"force":"on","seconds":600,"by":"test"}'
        )
        assert (await client.send(gateway.port, force)).status == 200
        await hole.until(lambda: bool(hole.exchanges))
        for number in range(20):
            raw = client.request("POST", CHAT, [JSON, (b"x-session-id", b"s%d" % number)], b"{}")
            assert (await client.send(gateway.port, raw)).status == 200
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
    lines = [json.loads(line) for line in gateway.stdout.splitlines()]
    assert len([line for line in lines if line["path"] == CHAT]) == 20
