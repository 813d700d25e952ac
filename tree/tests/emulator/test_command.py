"""`headrace engine`: its options reach the engine, wrong ones are refused, and a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Callable

import pytest

from gateway.emulator.command import add_arguments, run, settings_of
from gateway.emulator.settings import EngineSettings, SchedulingPolicy
from tests import client
from tests.emulator.running import chat_request, decoded

MAIN = (
    "import argparse, sys\n"
    "from gateway.emulator.command import add_arguments, run\n"
    "parser = argparse.ArgumentParser()\n"
    "add_arguments(parser)\n"
    "sys.exit(run(parser.parse_args()))\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_with_its_options_until_a_signal(number: signal.Signals) -> None:
    options = [
        "--port",
        "0",
        "--model",
        "mill",
        "--time-scale",
        "0",
        "--fault",
        "stall=3",
        "--fault",
        "share=0",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = re.search(r"'mill' on http://127.0.0.1:(\d+) ", line)
    assert found, line
    port = int(found[1])
    assert decoded(await client.send(port, chat_request()))["model"] == "mill"
    faults = decoded(await client.send(port, client.request("GET", "/emulator/faults")))
    assert (faults["stall"], faults["share"]) == (3, 0)
    process.send_signal(number)
    assert await process.wait() == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--max-num-seqs", "0"],
        ["--kv-blocks", "4"],
        ["--time-scale", "-1"],
        ["--fault", "slwo=2"],
        ["--fault", "refuse"],
        ["--fault", "cut=-1"],
    ],
)
def test_a_wrong_setting_is_named_and_ends_with_status_2(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert run(parser.parse_args([*options, "--port", "0"])) == 2
    said = capsys.readouterr().err
    assert any(word in said for word in ("max_num_seqs", "kv_blocks", "time_scale", "slwo", "refuse", "cut"))


def test_an_address_that_cannot_be_had_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert run(parser.parse_args(["--uds", "/nonexistent/engine.sock"])) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_every_option_sets_its_setting_and_leaves_the_default_otherwise() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert settings_of(parser.parse_args([])) == EngineSettings()
    given = EngineSettings(
        model="mill",
        seed=3,
        time_scale=0.5,
        base_ms=1,
        slope_ms=2,
        prefill_tokens_per_second=5,
        max_num_seqs=6,
        max_num_batched_tokens=70,
        max_num_queued_reqs=8,
        scheduling_policy=SchedulingPolicy.PRIORITY,
        kv_blocks=90,
        prefix_caching=False,
        max_model_len=100,
        default_max_tokens=11,
        keep_alive_seconds=12,
        api_keys=("one", "two"),
    )
    options = (
        "--model mill --seed 3 --time-scale 0.5 --base-ms 1 --slope-ms 2 --prefill-tokens-per-second 5 --max-seqs 6 "
        "--max-num-batched-tokens 70 --max-num-queued-reqs 8 --scheduling-policy priority --kv-blocks 90 "
        "--no-prefix-caching --max-model-len 100 --default-max-tokens 11 --keep-alive-seconds 12 "
        "--api-key one --api-key two"
    )
    assert settings_of(parser.parse_args(options.split())) == given


def test_every_setting_out_of_range_is_refused_with_its_name() -> None:
    wrong: list[Callable[[], EngineSettings]] = [
        lambda: EngineSettings(base_ms=-1),
        lambda: EngineSettings(prefill_tokens_per_second=0),
        lambda: EngineSettings(max_num_batched_tokens=1),
        lambda: EngineSettings(max_num_seqs=5000, max_num_batched_tokens=5000),
        lambda: EngineSettings(default_max_tokens=0),
        lambda: EngineSettings(keep_alive_seconds=0),
        lambda: EngineSettings(max_model_len=10**9),
        lambda: EngineSettings(max_num_queued_reqs=-1),
    ]
    for make in wrong:
        with pytest.raises(ValueError, match=r"^[a-z_]+ must be at (least|most) "):
            make()
