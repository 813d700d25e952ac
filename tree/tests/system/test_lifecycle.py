"""The life of the process, from its start over reloads to its end, as its operator and its clients see it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import main
from tests import client
from tests.backend import Backend, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, JSON

EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'
WRAPPED = b"data: " + EVENT + b"\n\n"
STREAM = client.request("POST", CHAT, [JSON], b'{"stream":true}')
PLAIN = client.request("POST", CHAT, [JSON], b"{}")
READY = client.request("GET", "/readyz")


def configuration(*backends: Backend, **sections: Any) -> str:
    """As a file: YAML takes JSON."""
    pool = {"name": "p", "backends": [{"url": backend.url} for backend in backends]}
    return json.dumps({"pools": [pool | sections.pop("pool", {})], **sections})


class Configured:
    """A configuration file and how to start the gateway with it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "headrace.yaml"

    def write(self, *backends: Backend, **sections: Any) -> None:
        self.path.write_text(configuration(*backends, **sections))

    def process(self, *arguments: str) -> GatewayProcess:
        return GatewayProcess("--config", str(self.path), *arguments)


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    return Configured(tmp_path)


async def first_event(connection: client.Connection) -> client.AnswerHead:
    head = await connection.read_head()
    pieces = connection.pieces(head)
    assert await anext(pieces) == WRAPPED
    return head


async def is_refused(port: int) -> bool:
    """Whether new work is turned away: nobody listens, or the answer is 503."""
    try:
        return (await client.send(port, READY)).status == 503
    except (ConnectionError, EOFError):
        return True


async def metric(gateway: GatewayProcess, sample: bytes) -> bytes | None:
    """The value of one sample, named with its labels as the page writes it."""
    page = (await client.send(gateway.port, client.request("GET", "/metrics"))).body
    return next((line.split()[-1] for line in page.splitlines() if line.startswith(sample + b" ")), None)


async def test_a_running_stream_ends_well_after_sigterm_while_new_work_is_turned_away() -> None:
    gate, late = Gate(), Gate()

    def script(request: Request) -> Script:
        if request.body == b"{}":
            return Script(before_head=late, chunks=[b"late"])
        return sse_script(EVENT, gate, b"[DONE]")

    async with Backend(script) as backend, GatewayProcess("--backend", backend.url) as gateway:
        idle = await client.connect(gateway.port)
        await idle.send(READY)
        assert (await idle.read_answer()).status == 200
        unused = await client.connect(gateway.port)
        stream = await client.connect(gateway.port)
        await stream.send(STREAM)
        head = await first_event(stream)
        plain = await client.connect(gateway.port)
        await plain.send(PLAIN)
        await backend.exchange(1)

        gateway.signal(signal.SIGTERM)
        assert await idle.read_until_closed() == b""
        assert await unused.read_until_closed() == b""
        assert await is_refused(gateway.port)
        gate.set()
        rest = await stream.read_body(head)
        assert (rest.body, rest.complete) == (b"data: [DONE]\n\n", True)
        assert gateway.returncode is None, "one is still running"
        late.set()
        answer = await plain.read_answer()
        assert (answer.body, answer.value(b"connection")) == (b"late", b"close")
        assert await plain.read_until_closed() == b""
        assert await gateway.wait() == 0
        for connection in (idle, unused, stream, plain):
            connection.close()


async def test_what_remains_after_drain_seconds_gets_an_error_event_or_a_503(configured: Configured) -> None:
    def script(request: Request) -> Script:
        return Script(before_head=Gate()) if request.body == b"{}" else sse_script(EVENT, Gate())

    async with Backend(script) as backend:
        configured.write(backend, server={"drain_seconds": 0.2}, pool={"window": {"max": 2}})
        async with configured.process() as gateway:
            stream = await client.connect(gateway.port)
            await stream.send(STREAM)
            await first_event(stream)
            plain, waiting, uploading = [await client.connect(gateway.port) for _ in range(3)]
            await plain.send(PLAIN)
            await backend.exchange(1)
            await waiting.send(PLAIN)
            await uploading.send(client.request("POST", CHAT, [JSON, (b"Content-Length", b"9")]) + b"{")
            while await metric(gateway, b"headrace_requests_in_flight") != b"4.0":
                pass

            gateway.signal(signal.SIGTERM)
            rest = await stream.read_until_closed()
            assert b'"reason":"shutting_down"' in rest and b"[DONE]" not in rest
            assert not rest.endswith(b"0\r\n\r\n"), "never a normal end"
            for connection in (plain, waiting, uploading):
                answer = await connection.read_answer()
                assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"shutting_down")
                assert json.loads(answer.body)["error"]["code"] == 503
                assert answer.value(b"retry-after")
                connection.close()
            assert await gateway.wait() == 0
            for exchange in backend.exchanges:
                await exchange.peer_closed.wait()
            stream.close()
        lines = [json.loads(line) for line in gateway.stdout.splitlines()]
        ended = [line["outcome"] for line in lines if line["reason"] == "shutting_down"]
        assert sorted(ended) == ["cut", "refused", "refused", "refused"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(number: signal.Signals, configured: Configured) -> None:
    async with Backend(lambda _: sse_script(EVENT, Gate())) as backend:
        configured.write(backend, server={"drain_seconds": 3600})
        async with configured.process() as gateway, await client.connect(gateway.port) as stream:
            await stream.send(STREAM)
            await first_event(stream)
            gateway.signal(number)
            await until(lambda: b"draining 1 request(s)" in gateway.stderr)
            gateway.signal(number)
            assert await gateway.wait() == 0
            assert not (await stream.read_until_closed()).endswith(b"0\r\n\r\n")


async def test_a_reload_serves_new_requests_and_leaves_running_ones_their_backend(
    configured: Configured,
) -> None:
    gate = Gate()
    async with (
        Backend(lambda _: sse_script(EVENT, gate, b"[DONE]"), record_probes=True) as old,
        Backend(lambda _: json_script({"from": "new"}), models=["n"], record_probes=True) as new,
    ):
        probes = {"interval_seconds": 0.05}
        configured.write(old, probes=probes)
        async with configured.process() as gateway, await client.connect(gateway.port) as stream:
            await stream.send(STREAM)
            head = await first_event(stream)
            configured.write(new, probes=probes, aliases={"nick": "n"}, server={"max_body_mb": 0.001})
            gateway.signal(signal.SIGHUP)
            await until(lambda: b"the configuration was reloaded" in gateway.stderr)
            await new.until(lambda: len(new.exchanges) >= 3)
            asked = len(old.exchanges)
            answer = await client.send(
                gateway.port, client.request("POST", CHAT, [JSON], b'{"model":"nick"}')
            )
            assert json.loads(answer.body) == {"from": "new"}
            [sent] = [exchange.request for exchange in new.exchanges if exchange.request.method == "POST"]
            assert sent.body == b'{"model":"n"}'
            too_long = client.request("POST", CHAT, [JSON], b"{%b}" % (b" " * 2000))
            assert (await client.send(gateway.port, too_long)).status == 413
            assert await metric(gateway, b'headrace_config_reloads_total{result="ok"}') == b"1.0"

            # Many intervals later the removed backend has not been asked again, and its stream is still its own.
            await new.until(lambda: len(new.exchanges) >= 20)
            assert len(old.exchanges) == asked
            gate.set()
            assert (await stream.read_body(head)).complete
            assert await metric(gateway, b'headrace_backend_up{backend="%b",pool="p"}' % _name(old)) is None
            await old.until(lambda: not old.connections)


def _name(backend: Backend) -> bytes:
    return backend.url.removeprefix("http://").encode()


async def test_a_bad_file_changes_nothing_and_says_why(configured: Configured) -> None:
    async with Backend() as backend:
        configured.write(backend)
        async with configured.process() as gateway:
            faulty = {
                "unknown key": configuration(backend, unheard_of=1),
                "out of range": configuration(backend, server={"drain_seconds": -1}),
                "cannot be read": None,
            }
            for failed, content in enumerate(faulty.values(), 1):
                configured.path.unlink() if content is None else configured.path.write_text(content)
                gateway.signal(signal.SIGHUP)
                await until(lambda failed=failed: gateway.stderr.count(b"was not reloaded") == failed)  # type: ignore[misc]
                sample = b'headrace_config_reloads_total{result="failed"}'
                assert await metric(gateway, sample) == b"%.1f" % failed
                assert (await client.send(gateway.port, PLAIN)).status == 200
            for what in faulty:
                assert what.encode() in gateway.stderr
            assert f"{configured.path}:1: unheard_of".encode() in gateway.stderr
            configured.write(backend)
            gateway.signal(signal.SIGHUP)
            await until(lambda: b"the configuration was reloaded" in gateway.stderr)


async def test_a_port_in_use_is_named_and_ends_with_1() -> None:
    async with Backend() as backend:
        port, pipe = str(backend.port), asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "gateway", "serve", "--backend", backend.url, "--port", port]
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(client.WAIT_SECONDS):
            stdout, stderr = await process.communicate()
        assert (process.returncode, stdout) == (1, b"")
        assert stderr.startswith(b"cannot listen on 127.0.0.1:%b: " % port.encode())
        assert stderr.count(b"\n") == 1


UNUSABLE: dict[str, tuple[Sequence[str], str]] = {
    "nothing to serve": ([], "--backend"),
    "both sources": (["--backend", "http://a", "--config", "b"], "not allowed with"),
    "no number": (["--backend", "http://a", "--port", "x"], "--port"),
    "port out of range": (["--backend", "http://a", "--port", "65536"], "65536"),
    "no url": (["--backend", "a:b"], "backends[0].url"),
    "one backend twice": (["--backend", "http://a", "--backend", "http://a:80"], "backends[1].url"),
    "no such file": (["--config", "/no/such/file"], "/no/such/file"),
    "a folder": (["--config", "/"], "/: "),
}


@pytest.mark.parametrize(("arguments", "says"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_bad_command_line_or_configuration_ends_with_2(
    arguments: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(["serve", *arguments])
    except SystemExit as ended:  # as argparse does
        status = ended.code
    written = capsys.readouterr()
    assert (status, written.out) == (2, "") and says in written.err


async def test_each_request_is_one_json_line_and_no_key_is_in_any_log(configured: Configured) -> None:
    async with Backend(lambda _: sse_script(EVENT, b"[DONE]")) as backend, Backend() as gone:
        keyed = [{"url": one.url, "api_key": "k3y-of-the-engine"} for one in (backend, gone)]
        configured.write(pool={"backends": keyed})
        await gone.stop()
        bearer = (b"Authorization", b"Bearer k3y-of-the-client")
        async with configured.process() as gateway:
            requests = [
                client.request("POST", CHAT, [JSON, bearer], b'{"stream":true,"model":"m"}'),
                client.request("POST", CHAT, [JSON, bearer], b'{"model":"\\u001b[31m\\n\\u2028\\ud800"}'),
                client.request("POST", "/v1/x%0A%1b?api_key=k3y-of-the-client", [bearer], b"{}"),
                client.request("GET", "/v1/responses/%C2%85?key=k3y-of-the-client", [bearer]),
                client.request("POST", CHAT, [JSON, bearer], b"{"),
            ]
            await until(lambda: b" is up" in gateway.stderr and b" is not healthy" in gateway.stderr)
            for raw in requests:
                await client.send(gateway.port, raw)
            configured.write(pool={"backends": keyed}, k3y=1)
            gateway.signal(signal.SIGHUP)
            await until(lambda: b"was not reloaded" in gateway.stderr)
        lines = gateway.stdout.decode().split("\n")
        assert lines.pop() == ""
        records = [json.loads(line) for line in lines]
        assert [record["status"] for record in records] == [200, 503, 404, 404, 400]
        assert all(line.isprintable() for line in lines)
        assert all(record["request_id"] and record["total_ms"] >= 0 for record in records)
        assert b"k3y-of" not in gateway.stdout + gateway.stderr


async def test_started_without_a_file_and_without_a_log_it_has_nothing_to_reload_and_writes_no_line() -> None:
    async with Backend() as backend:
        async with GatewayProcess("--backend", backend.url, "--no-request-log") as gateway:
            gateway.signal(signal.SIGHUP)
            await until(lambda: b"no configuration file to reload" in gateway.stderr)
            assert (await client.send(gateway.port, PLAIN)).status == 200
        assert gateway.stdout == b"" and gateway.returncode == 0
