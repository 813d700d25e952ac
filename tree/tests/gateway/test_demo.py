"""`headrace demo` as a user runs it, in a child process with plain output, and the parts that its display rests on."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gateway.demo.business import TYPES, BusinessType, RequestBodies
from gateway.demo.figures import WINDOW_SECONDS, Ending, Span, TypeFigures
from gateway.demo.fleet import Fleet, outages
from gateway.demo.load import Load
from gateway.demo.scrape import read_page
from gateway.demo.screen import Screen
from gateway.demo.stage import way_to
from gateway.demo.view import View, introduction, summary
from gateway.emulator.chat_template import render
from gateway.emulator.tokens import read_text

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


async def test_a_short_demo_survives_an_outage_and_says_what_it_answered() -> None:
    async with running("--port", "0", "--seconds", "4") as demo:
        status, error = await demo.end()
    assert (status, error) == (0, "")
    assert "refuses connections for 1 s" in demo.output
    assert "is used again" in demo.output or "moved to another engine" in demo.output
    found = re.search(r"^(\d+) answered in \d+ s, (\d+) refused, (\d+) failed", demo.output, re.MULTILINE)
    assert found is not None, demo.output
    answered, refused, failed = map(int, found.groups())
    assert answered > 0
    assert (refused, failed) == (0, 0)
    assert all(f"{kind.name}: " in demo.output for kind in TYPES)


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


async def test_a_load_of_nothing_is_refused() -> None:
    async with running("--load", "0") as demo:
        status, error = await demo.end()
    assert status == 2
    assert "--load" in error


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_prompts_have_the_lengths_of_their_business_type(kind: BusinessType) -> None:
    bodies = RequestBodies(kind, Random(1))
    shortest, longest = kind.prompt_tokens
    drawn = [bodies.draw() for _ in range(200)]
    for body, streamed in drawn:
        prompt = render(orjson.loads(body)["messages"], [])
        assert shortest <= read_text(prompt).tokens <= longest
        assert (b'"stream":true' in body) is streamed
    assert 0 < sum(streamed for _, streamed in drawn) < len(drawn)


def test_one_seed_draws_one_sequence_of_requests() -> None:
    def drawn(seed: int) -> list[tuple[bytes, bool]]:
        bodies = RequestBodies(TYPES[0], Random(seed))
        return [bodies.draw() for _ in range(20)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@given(st.lists(st.integers(0, 5000), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_nearest_rank(latencies_ms: list[int], share: float) -> None:
    span = Span()
    span.latencies_ms.update(latencies_ms)
    percentile = span.percentile_ms(share)
    assert percentile is not None
    not_above = sum(latency <= percentile for latency in latencies_ms)
    below = sum(latency < percentile for latency in latencies_ms)
    assert below < share * len(latencies_ms) <= not_above


def test_only_answers_in_time_are_inside_the_target() -> None:
    figures = TypeFigures(target_ms=300)
    for ending, latency in (
        (Ending.ANSWERED, 0.3),
        (Ending.ANSWERED, 0.3001),
        (Ending.REFUSED, 0.01),
        (Ending.FAILED, 0.01),
    ):
        figures.sent(5.5)
        figures.ended(ending, latency, 5.5)
    assert figures.whole.inside_share == 0.25
    assert figures.whole.percentile_ms(1.0) == 301


def test_the_recent_figures_are_those_of_the_last_whole_seconds() -> None:
    figures = TypeFigures(target_ms=300)
    for tenth in range(300):
        figures.sent(100 + tenth / 10)
    span, rate = figures.recent(129.95)
    assert (span.sent, rate) == (10 * WINDOW_SECONDS, 10.0)
    assert figures.recent(150.0) == (Span(), 0.0)


def test_the_gateway_s_page_is_read_by_backend() -> None:
    state = read_page(
        "# TYPE headrace_backend_up gauge\n"
        'headrace_backend_up{backend="a",pool="p"} 1.0\n'
        'headrace_backend_up{backend="b",pool="p"} 0.0\n'
        'headrace_backend_in_flight{backend="a",pool="p"} 3.0\n'
        'headrace_requests_total{backend="a",pool="p",status="2xx"} 5.0\n'
        'headrace_requests_total{backend="a",pool="p",status="5xx"} 1.0\n'
        'headrace_retries_total{backend="a"} 2.0\n'
        "headrace_requests_waiting 4.0\n"
        'headrace_requests_unknown{backend="a"} 9.0\n'
    )
    assert state.up == {"a": True, "b": False}
    assert (state.in_flight["a"], state.requests["a"], state.moved_here["a"], state.waiting) == (3, 6, 2, 4)


def test_outages_stay_inside_a_short_run_and_recur_in_an_endless_one() -> None:
    once = outages(4.0)
    assert once.start_of(1) is None
    assert once.first_seconds > 0 and once.first_seconds + once.seconds < 4.0
    endless = outages(None)
    assert endless.start_of(2) == endless.first_seconds + 2 * endless.every_seconds
    assert endless.seconds < endless.every_seconds


async def test_each_engine_has_its_turn_to_fail() -> None:
    async with Fleet(seed=1) as fleet:
        assert {fleet.next_to_fail().name for _ in fleet.members} == {member.name for member in fleet.members}


async def test_everything_fits_a_terminal_of_80_columns_and_24_rows() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=80, height=24, force_terminal=True, legacy_windows=False))
    async with Fleet(seed=1) as fleet:
        view = View(fleet, Load(way_to(65535), 1.0, 1), seconds=3600.0)
        for figures in view.load.figures:
            for latency in (0.101, 1.501):
                figures.sent(5.0)
                figures.ended(Ending.ANSWERED, latency, 5.0)
        for second in range(4):
            view.note(f"low-latency-{second} refuses connections for 8 s (on purpose)")
        screen.open(introduction(65535, 1.0, 8))
        screen.show(view, 6.0)
        screen.close(summary(view))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue()).replace("\r", "\n").splitlines()
    assert [line for line in lines if len(line.rstrip()) > 80 or "…" in line] == []
    assert "1501 ms" in out.getvalue()
    # The end repaints the tables once more, over themselves.
    repaint = [row for row, line in enumerate(lines) if line.startswith("last ")][1]
    assert repaint < 24
