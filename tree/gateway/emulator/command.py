"""`headrace engine`: one emulated vLLM-shaped engine, for demos, tests and benchmarks.

It imitates an engine's interface, its timing under load and its failures. There is no model: answers are
words without meaning, and their length is what the request allows. Not modelled: log probabilities, `echo`,
adapters, images beyond their cost in tokens, the growth of attention's cost with the context, speculative
decoding, the Responses, Anthropic and scoring interfaces, dev-mode control paths.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import signal
import sys

import uvloop

from gateway.emulator.faults import REFUSE, Faults, parse_option
from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings, SchedulingPolicy

_OPTIONS: dict[str, tuple[type, str]] = {
    "model": (str, "the model's name"),
    "seed": (int, "ids, texts and token counts repeat for equal seeds and requests"),
    "time_scale": (float, "factor on all engine times; 0 answers at once"),
    "base_ms": (float, "residence of a 20-token answer, the part without the batch"),
    "slope_ms": (float, "what each sequence in the batch adds to it"),
    "prefill_tokens_per_second": (float, "prompt tokens computed per second, cached ones excepted"),
    "max_num_seqs": (int, "sequences in one step"),
    "max_num_batched_tokens": (int, "tokens in one step; longer prompts are prefilled in chunks"),
    "max_num_queued_reqs": (int, "bound on running plus waiting, 503 beyond it; 0 is none"),
    "kv_blocks": (int, "KV capacity in blocks of 16 tokens"),
    "max_model_len": (int, "prompt and answer together, in tokens"),
    "default_max_tokens": (int, "length of an answer whose request names none"),
    "keep_alive_seconds": (float, "how long an idle connection stays open"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `headrace engine`; each default is that of `EngineSettings`."""
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8000, help="port, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument("--uds", default="", metavar="PATH", help="listen on a Unix socket instead")
    defaults = EngineSettings()
    for name, (kind, text) in _OPTIONS.items():
        flags = ["--" + name.replace("_", "-")]
        if name == "max_num_seqs":
            flags.append("--max-seqs")
        parser.add_argument(
            *flags,
            dest=name,
            type=kind,
            default=getattr(defaults, name),
            help=f"{text} (default: %(default)s)",
        )
    parser.add_argument(
        "--scheduling-policy",
        choices=[policy.value for policy in SchedulingPolicy],
        default=defaults.scheduling_policy.value,
        help="order of the waiting queue; with priority the lower number goes first (default: %(default)s)",
    )
    parser.add_argument("--no-prefix-caching", action="store_true", help="compute every prompt whole")
    parser.add_argument(
        "--api-key", action="append", default=[], metavar="KEY", help="guard /v1; may be repeated"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="start with a fault, e.g. slow=3, stall=5, cut=5, reset, silent, error; may be repeated; "
        "POST /emulator/faults changes them later",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. 2 for a wrong setting, 1 when the address cannot be had."""
    try:
        settings = settings_of(arguments)
        faults = dict(parse_option(option) for option in arguments.fault)
        refuse = faults.pop(REFUSE, None)
        Faults().update(faults)
        if refuse is not None and (
            isinstance(refuse, bool) or not isinstance(refuse, int | float) or refuse <= 0
        ):
            raise ValueError("refuse takes seconds above 0, e.g. refuse=5")
    except ValueError as error:
        sys.stderr.write(f"headrace engine: {error}\n")
        return 2
    refuse_seconds = float(refuse) if refuse is not None else None
    try:
        uvloop.run(_serve(settings, arguments.host, arguments.port, arguments.uds, faults, refuse_seconds))
    except OSError as error:
        sys.stderr.write(f"headrace engine: cannot listen: {error}\n")
        return 1
    return 0


def settings_of(arguments: argparse.Namespace) -> EngineSettings:
    """The settings that parsed options ask for; `ValueError` names the one that is out of range."""
    return dataclasses.replace(
        EngineSettings(),
        **{name: getattr(arguments, name) for name in _OPTIONS},
        scheduling_policy=SchedulingPolicy(arguments.scheduling_policy),
        prefix_caching=not arguments.no_prefix_caching,
        api_keys=tuple(arguments.api_key),
    )


async def _serve(
    settings: EngineSettings,
    host: str,
    port: int,
    uds: str,
    faults: dict[str, object],
    refuse_seconds: float | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await start(settings, host, port, uds)
    server.faults.update(faults)
    if refuse_seconds is not None:
        server.refuse(refuse_seconds)
    where = uds or server.url
    sys.stdout.write(
        f"emulated engine {settings.model!r} on {where} (an emulation, no model behind it); Ctrl-C ends it\n"
    )
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await server.close()
