"""The command line: `headrace serve | check | explain | train | demo | engine`.

Imports happen inside the commands: `headrace --help` and `headrace check` need no server, and a start should take less than a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from gateway.emulator import command as engine_command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="An OpenAI-compatible gateway in front of self-hosted vLLM and SGLang engines.",
    )
    parser.add_argument("--version", action="version", version=f"headrace {version('headrace')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="stand in front of engines", description=_serve.__doc__)
    source = serve.add_mutually_exclusive_group(required=True)
    source.add_argument("--backend", action="append", metavar="URL", help="an engine; may be repeated")
    source.add_argument("--config", metavar="FILE", help="a YAML configuration")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (default 8080; 0 takes a free one)")
    serve.add_argument("--no-request-log", action="store_true", help="no JSON line per request")
    serve.set_defaults(run=_serve)

    check = commands.add_parser("check", help="validate a configuration", description=_check.__doc__)
    check.add_argument("file", metavar="FILE")
    check.set_defaults(run=_check)

    explain = commands.add_parser(
        "explain",
        help="what would be decided about a request, without sending it",
        description=_explain.__doc__,
    )
    explain.add_argument("file", metavar="FILE.json", help="the request's body; - is standard input")
    explain.add_argument("--config", metavar="FILE", required=True, help="a YAML configuration")
    explain.add_argument("--path", default="/v1/chat/completions", help="default: %(default)s")
    explain.add_argument("--header", action="append", default=[], metavar="NAME: VALUE")
    explain.set_defaults(run=_explain)

    train = commands.add_parser(
        "train", help="learn a classifier of business types from labelled lines", description=_train.__doc__
    )
    train.add_argument(
        "file", metavar="LINES.tsv", help="one example a line: the business type, a tab, the text"
    )
    train.add_argument(
        "--out", metavar="MODEL.json", required=True, help="where the classifier is written to"
    )
    train.add_argument("--config", metavar="FILE", help="allow only the business types of this configuration")
    train.add_argument(
        "--min-confidence",
        type=float,
        default=0.8,
        help="where the report draws its line, as classifier.min_confidence will (default: %(default)s)",
    )
    train.set_defaults(run=_train)

    demo = commands.add_parser(
        "demo", help="emulated engines, the gateway and a load, on loopback", description=_demo.__doc__
    )
    demo.add_argument("--port", type=int, default=8080, help="the gateway's port (default: %(default)s)")
    demo.add_argument("--seconds", type=float, help="end by itself after this long (default: until Ctrl-C)")
    demo.add_argument("--seed", type=int, default=1, help="of arrivals and prompts (default: %(default)s)")
    demo.add_argument(
        "--load",
        type=float,
        default=0.04,
        help="what the fleet can do, as a share of the field's peak of 2000 requests/s (default: %(default)s)",
    )
    demo.add_argument(
        "--once", action="store_true", help="end with the show, after less than a minute (default: stay calm)"
    )
    demo.add_argument(
        "--sessions",
        choices=("memory", "redis"),
        default="memory",
        help="redis: turns of sessions among the load, kept in a Redis that the demo starts (default: %(default)s)",
    )
    demo.add_argument("--redis-url", default="", help="for --sessions redis: one that runs already")
    demo.set_defaults(run=_demo)

    engine = commands.add_parser("engine", help="one emulated engine", description=engine_command.__doc__)
    engine_command.add_arguments(engine)
    engine.set_defaults(run=engine_command.run)

    parsed = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    return run(parsed)


def _serve(arguments: argparse.Namespace) -> int:
    """Stand in front of engines: every --backend in one pool, or whatever the configuration says."""
    from dataclasses import replace

    from gateway import server
    from gateway.configuration import ConfigurationError, load, verify
    from gateway.settings import LogSettings, ServerSettings, Settings, one_pool

    def settings() -> Settings:
        if arguments.config:
            read = load(arguments.config, os.environ)
        else:
            read = one_pool(tuple(arguments.backend), ServerSettings())
        given = {"host": arguments.host, "port": arguments.port}
        changes = {name: value for name, value in given.items() if value is not None}
        log = LogSettings(requests=False) if arguments.no_request_log else read.log
        read = replace(read, server=replace(read.server, **changes), log=log)
        verify(read, "command line")
        return read

    try:
        first = settings()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return server.run(first, settings if arguments.config else None)


def _check(arguments: argparse.Namespace) -> int:
    """Validate a configuration: every fault with file, line, key and what is allowed. Exit code 2 if there is any."""
    from gateway.configuration.check import check_command

    return check_command(arguments.file, os.environ)


def _explain(arguments: argparse.Namespace) -> int:
    """The tag of a request and what would be decided about it by an idle gateway."""
    from gateway.app import idle_router
    from gateway.explain import explain_command

    return explain_command(
        arguments.config, arguments.file, arguments.path, arguments.header, os.environ, idle_router
    )


def _train(arguments: argparse.Namespace) -> int:
    """Learn a classifier of business types from labelled lines, and say how good it is on lines that it has not seen."""
    from gateway.train import train_command

    return train_command(
        arguments.file, arguments.out, arguments.config, arguments.min_confidence, os.environ
    )


def _demo(arguments: argparse.Namespace) -> int:
    """A show of less than a minute on loopback: emulated engines, the gateway in front of them, three business types, a burst of
    twice what the engines can do and the recovery from it. Then a calm load until Ctrl-C."""
    from gateway import demo

    redis_url = arguments.redis_url if arguments.sessions == "redis" else None
    return demo.run(
        arguments.port, arguments.seconds, arguments.seed, arguments.load, arguments.once, redis_url
    )


if __name__ == "__main__":
    sys.exit(main())
