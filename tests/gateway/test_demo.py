"""`headrace demo` as a user runs it, in a child process with plain output, and its display on a small terminal."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
import redis
from rich.console import Console

from gateway.demo import gateway_child, run
from gateway.demo import load as demo_load
from gateway.demo.business import BANK_A_KEY, BANK_B_KEY, TYPES
from gateway.demo.figures import Ending
from gateway.demo.fleet import Fleet
from gateway.demo.gateway_child import GatewayChild, GatewayEnded, any_free_port
from gateway.demo.load import Load
from gateway.demo.phases import course
from gateway.demo.redis_child import NoRedis, end_left_behind, find_server, redis_child
from gateway.demo.scrape import GatewayPages
from gateway.demo.screen import Screen
from gateway.demo.stage import Stage, way_to
from gateway.demo.view import ROWS, View, introduction, refusals, summary
from tests.backend import Backend, Gate, Script, sse_script
from tests.emulator.running import until

BOUND_SECONDS = 30
LIGHT = ("--load", "0.02")


class Demo:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process = process
        self._out = process.stdout
        self._err = process.stderr
        self.output = ""

    async def until(self, text: str) -> str:
        """Read on to the line that has `text`."""
        async with asyncio.timeout(BOUND_SECONDS):
            while line := (await self._out.readline()).decode():
                self.output += line
                if text in line:
                    return line
        raise AssertionError(f"no {text!r} in:\n{self.output}\n{(await self._err.read()).decode()}")

    async def port(self) -> int:
        found = re.search(r"127\.0\.0\.1:(\d+)/v1/", await self.until("curl"))
        assert found is not None
        return int(found[1])

    def stop_reading(self) -> None:
        """As `head` does when it has seen enough."""
        way = self.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        way.close()

    async def end(self) -> tuple[int, str]:
        """Its exit status and what it wrote to standard error."""
        async with asyncio.timeout(BOUND_SECONDS):
            self.output += (await self._out.read()).decode()
            error = (await self._err.read()).decode()
            return await self.process.wait(), error


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Demo]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "demo", *LIGHT, *arguments, stdout=pipe, stderr=pipe
    )
    demo = Demo(process)
    try:
        yield demo
    finally:
        if process.returncode is None:
            process.kill()
        await demo.end()


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as listing:
        return [int(child) for child in listing.read().split()]


async def test_a_short_demo_shows_every_phase_and_says_what_it_answered() -> None:
    async with running("--port", "0", "--seconds", "4", "--once") as demo:
        status, error = await demo.end()
    assert (status, error) == (0, "")
    phases = [demo.output.index(f" s  {name}: ") for name in ("calm", "burst", "after the burst", "outage")]
    assert phases == sorted(phases)
    assert "refuses connections for 0.6 s" in demo.output
    assert "is used again" in demo.output or "moved to another engine" in demo.output
    found = re.search(r"^(\d+) answered in \d+ s, (\d+) refused, (\d+) failed", demo.output, re.MULTILINE)
    assert found is not None, demo.output
    answered, _, failed = map(int, found.groups())
    assert answered > 0
    assert failed == 0
    assert all(f"  {row.name}:" in demo.output for row in ROWS)


async def test_a_newcomer_s_text_key_and_headers_decide_what_a_request_is() -> None:
    async with running("--port", "0") as demo:
        url = f"http://127.0.0.1:{await demo.port()}/v1"

        async def route(text: str, key: str, headers: dict[str, str]) -> str:
            async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
                answer = await client.chat.completions.with_raw_response.create(
                    model="emulated",
                    messages=[{"role": "user", "content": text}],
                    max_tokens=4,
                    extra_headers=headers,
                )
                return answer.headers["x-headrace-route"]

        urgent = {"x-headrace-lane": "emergency"}
        for kind in TYPES:
            for keyword in kind.keywords:
                assert f"business={kind.id};" in await route(f"About {keyword}", "none", {})
        assert "lane=emergency" in await route("My credit card?", BANK_A_KEY, urgent)
        assert "lane=interactive" in await route("My credit card?", BANK_B_KEY, urgent)
        with pytest.raises(openai.AuthenticationError):
            await route("My credit card?", "a wrong key", {})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_ctrl_c_ends_the_demo_and_its_gateway_while_clients_use_it() -> None:
    async with running("--port", "0") as demo:
        port = await demo.port()
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
            answer = await client.chat.completions.create(
                model="emulated", messages=[{"role": "user", "content": "Hello"}]
            )
            assert answer.choices[0].message.content
            await demo.until("engines up 8/8")
            children = children_of(demo.process.pid)
            assert len(children) == 1
            # A long stream is under way: the end does not wait for it.
            stream = await client.chat.completions.create(
                model="emulated",
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=4000,
                stream=True,
            )
            demo.process.send_signal(signal.SIGINT)
            status, error = await demo.end()
            await stream.close()
    assert (status, error) == (0, "")
    assert " answered in " in demo.output
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


async def test_the_gateway_ends_when_the_demo_is_killed() -> None:
    async with running("--port", "0") as demo:
        reader, writer = await asyncio.open_connection("127.0.0.1", await demo.port())
        demo.process.kill()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_gateway_that_ends_unasked_ends_the_demo_with_status_1_and_its_log() -> None:
    async with running("--port", "0") as demo:
        await demo.port()
        [child] = children_of(demo.process.pid)
        os.kill(child, signal.SIGTERM)
        status, error = await demo.end()
    assert status == 1
    assert error.startswith("headrace demo: the gateway ended with status 0\n")
    assert "listening on" in error, error


async def test_a_taken_port_is_named_and_replaced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        async with running("--port", str(taken), "--seconds", "1") as demo:
            port = await demo.port()
            status, error = await demo.end()
    assert port != taken
    assert status == 0
    assert error == f"port {taken} is taken, the gateway listens on {port} instead\n"


async def test_sessions_are_kept_in_a_redis_that_the_demo_starts() -> None:
    async with running("--port", "0", "--seconds", "6", "--sessions", "redis") as demo:
        status, error = await demo.end()
    assert status == 0, error
    found = re.findall(r"sessions: (\d+) active, (\d+) turns kept, store (\w+)", demo.output)
    assert found, demo.output
    active, turns, store = found[-1]
    assert int(active) > 0 and int(turns) > 0 and store == "ok"


async def test_where_no_redis_is_installed_the_demo_says_what_to_do(tmp_path: Path) -> None:
    assert find_server(str(tmp_path)) is None
    with pytest.raises(NoRedis, match="--redis-url"):
        async with redis_child(str(tmp_path), None):
            raise AssertionError("nothing was started")


async def test_a_redis_on_the_path_is_used_and_one_that_does_not_start_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    found = find_server(str(tmp_path))
    assert found == str(broken)
    with pytest.raises(NoRedis, match="did not start"):
        async with redis_child(str(tmp_path), found):
            raise AssertionError("nothing was started")


async def test_an_engine_that_cannot_listen_takes_the_whole_fleet_with_it() -> None:
    fleet = Fleet(seed=1)
    in_the_way = Path(fleet.directory) / "high-batch-3"
    in_the_way.mkdir()
    with pytest.raises(OSError, match="high-batch-3"):
        async with fleet:
            raise AssertionError("an engine is missing")
    assert [member.name for member in fleet.members] == ["high-batch-1", "high-batch-2"]
    assert not any(member.server.accepting for member in fleet.members)
    assert not in_the_way.parent.exists()


async def test_a_gateway_that_hangs_is_given_up_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_child, "READY_SECONDS", 0.0)
    monkeypatch.setattr(gateway_child, "END_SECONDS", 0.05)
    pages = GatewayPages(way_to(any_free_port()))
    async with Fleet(seed=1) as fleet:
        async with GatewayChild(any_free_port(), fleet) as child:
            process = child._process
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(GatewayEnded, match="not ready within 0 s"):
                await child.ready(pages)
        assert process.returncode == -signal.SIGKILL


async def test_a_reader_that_has_read_enough_ends_the_demo_without_a_word() -> None:
    async with running("--port", "0") as demo:
        await demo.port()
        demo.stop_reading()
        async with asyncio.timeout(BOUND_SECONDS):
            status = await demo.process.wait()
        _, error = await demo.end()
    assert (status, error) == (0, "")


async def test_a_redis_url_that_is_none_is_refused_in_one_line() -> None:
    async with running("--sessions", "redis", "--redis-url", "http://x") as demo:
        status, error = await demo.end()
    assert status == 2
    assert len(error.splitlines()) == 1
    assert "--redis-url has no scheme" in error


async def test_a_redis_that_outlived_its_demo_is_ended() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with redis_child(directory, find_server()) as url:
            client = redis.Redis.from_url(url)
            assert await asyncio.to_thread(client.ping)
            await asyncio.to_thread(end_left_behind, directory)
            with pytest.raises(redis.ConnectionError):
                await asyncio.to_thread(client.ping)
            client.close()
    end_left_behind("/nowhere")


@pytest.mark.parametrize("error", [NoRedis("there is none"), GatewayEnded("it ended"), OSError("no room")])
def test_what_ends_a_demo_is_one_line_and_status_1(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play(stage: Stage) -> None:
        raise error

    monkeypatch.setattr(Stage, "play", play)
    assert run(port=0) == 1
    assert capsys.readouterr() == ("", f"headrace demo: {error}\n")


def test_ctrl_c_before_there_is_anything_to_end_is_an_orderly_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(stage: Stage) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stage, "play", interrupted)
    assert run(port=0) == 0


async def test_a_load_of_nothing_is_refused() -> None:
    async with running("--load", "0") as demo:
        status, error = await demo.end()
    assert status == 2
    assert "--load" in error


@asynccontextmanager
async def load_on(backend: Backend) -> AsyncIterator[Load]:
    pool = way_to(backend.port)
    load = Load(pool, 1000.0, course(None), 1)
    arriving = asyncio.create_task(load.arrive())
    try:
        yield load
    finally:
        arriving.cancel()
        await load.end(0)
        pool.close()


def ended(load: Load, ending: Ending) -> int:
    return sum(row.whole.endings[ending] for row in load.rows)


REFUSED = Script(
    status=503, headers=[(b"x-headrace-reason", b"overloaded"), (b"retry-after", b"2")], chunks=[]
)


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        (sse_script(b"{}", b"[DONE]"), Ending.ANSWERED),
        (sse_script(b"{}"), Ending.FAILED),
        (REFUSED, Ending.REFUSED),
        (None, Ending.FAILED),
    ],
    ids=["whole", "without its end", "refused", "nobody there"],
)
async def test_what_becomes_of_a_request_is_what_its_client_saw(
    script: Script | None, ending: Ending
) -> None:
    async with Backend(lambda _: script or Script()) as backend:
        if script is None:
            await backend.stop()
        async with load_on(backend) as load:
            await until(lambda: ended(load, ending) >= 3)
            assert [ended(load, other) for other in Ending if other is not ending] == [0, 0]
            if script is REFUSED:
                assert any(refusals(row.whole).startswith("overloaded ") for row in load.rows)
                assert any(refusals(row.whole).endswith("; Retry-After 2 s") for row in load.rows)


async def test_a_machine_that_cannot_make_the_load_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_load, "MAX_IN_FLIGHT", 1)
    async with (
        Backend(lambda _: Script(before_head=Gate())) as backend,
        load_on(backend) as load,
        Fleet(seed=1) as fleet,
    ):
        await until(lambda: load.left_out >= 2)
        said = summary(View(fleet, load, course(None)))
    assert said[-1].startswith("this machine was too busy: ")
    assert said[-1].endswith(f", {load.left_out} requests were left out; a smaller --load helps")


async def test_everything_fits_a_terminal_of_80_columns_and_24_rows() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=80, height=24, force_terminal=True, legacy_windows=False))
    async with Fleet(seed=1) as fleet:
        view = View(fleet, Load(way_to(65535), 80.0, course(None), 1), course(None), seconds=3600.0)
        for row in view.load.rows:
            for second in range(3540, 3600):
                row.sent(second)
                row.answered(second, 1.5005, 1000)
                row.sent(second)
                row.refused(second, "overloaded", 1 + second % 100)
                row.sent(second)
                row.refused(second, "deadline", 1)
        for number in range(4):
            view.note(f"low-latency-{number} refuses connections for 7 s (on purpose)")
        screen.open(introduction(65535, 8))
        for phase in view.course.phases:
            view.phase = phase
            screen.show(view)
        before = out.getvalue()
        screen.close(summary(view))
    assert [line for line in _plain(out.getvalue()) if len(line.rstrip()) > 80 or "…" in line] == []
    assert "1501" in before
    # The introduction and one frame below it: up to the next frame's first line.
    first = _plain(before)
    assert next(row for row, line in enumerate(first) if " burst: " in line) <= 24


def _plain(output: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output).replace("\r", "\n").splitlines()
