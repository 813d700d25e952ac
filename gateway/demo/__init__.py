"""`headrace demo`: an emulated fleet, the real gateway in front of it and a load, all on this machine.

A show of less than a minute: a calm load of three business types, a burst of twice what the fleet can do, the recovery, the loss of an engine (`phases`);
after it the load stays calm until Ctrl-C, for whoever wants to try requests of his own.

Two processes. This one runs the eight emulated engines, the load and the display in one event loop; a child runs the gateway as
`headrace serve` does (`served`), so that what is shown of it is what it costs and does elsewhere. What became of the requests is what their client
saw; what is in flight and waits is read from the gateway's `/metrics` and `/admin/state`. Child and parent hold a pipe: whichever way the parent ends,
the child does too.

Settings: `port` to listen on (taken: a message, and a free one instead; 0: a free one), `seconds` to run (None: until Ctrl-C; less than the show
takes: the whole show, faster), `once` to end with the show, `seed` of arrivals, prompts and engines, `load` as a share of the field's peak
rates (`business`) that the fleet is made to be able to answer (`fleet`), `redis_url` for sessions among the load: "" starts a Redis (`redis_child`).
Exit code: 0 when it ended by itself or by Ctrl-C, 1 when the gateway could not start or ended unasked, 2 for a wrong option.
Limits: times and texts of the engines are made up by a model of a measured engine, slowed down; the machine has to spare about one core.
"""

from __future__ import annotations

import os
import sys

DEFAULT_PORT = 8080
DEFAULT_LOAD = 0.04


def run(
    port: int = DEFAULT_PORT,
    seconds: float | None = None,
    seed: int = 1,
    load: float = DEFAULT_LOAD,
    once: bool = False,
    redis_url: str | None = None,
) -> int:
    """The exit code of `headrace demo`."""
    if load <= 0 or (seconds is not None and seconds <= 0):
        sys.stderr.write("headrace demo: --load and --seconds must be above 0\n")
        return 2
    if redis_url:
        from gateway.sessions.redis_url import BadRedisUrl, RedisAddress

        try:
            RedisAddress(redis_url)
        except BadRedisUrl as error:
            sys.stderr.write(f"headrace demo: --redis-url {error}\n")
            return 2
    try:
        return _play(port, seconds, seed, load, once, redis_url)
    except KeyboardInterrupt:  # before the signal handlers were in place
        return 0


def _play(port: int, seconds: float | None, seed: int, load: float, once: bool, redis_url: str | None) -> int:
    # Here and not above: most of the start is these imports, and Ctrl-C should end that too.
    import asyncio

    import uvloop

    from gateway.demo.gateway_child import GatewayEnded
    from gateway.demo.phases import SHOW_SECONDS
    from gateway.demo.redis_child import NoRedis
    from gateway.demo.stage import Stage

    if once:
        seconds = SHOW_SECONDS if seconds is None else min(seconds, SHOW_SECONDS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Stage(port, seconds, seed, load, redis_url).play())
    except BrokenPipeError:
        # Whoever read the plain lines has gone; without this the interpreter complains when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (GatewayEnded, NoRedis, OSError) as error:
        sys.stderr.write(f"headrace demo: {error}\n")
        return 1
    return 0
