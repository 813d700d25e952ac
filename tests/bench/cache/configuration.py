"""Headrace's configuration in this benchmark: one pool with a fixed window of a batch per engine. All else is at its default, but for the request log,
which is off as it is with all others."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.slo.fleet import Engine


def configuration(port: int, engines: Sequence[Engine]) -> dict[str, object]:
    return {
        "server": {"host": "127.0.0.1", "port": port},
        "pools": [
            {
                "name": engines[0].pool.name,
                "window": {"max": engines[0].pool.max_num_seqs},
                "backends": [{"url": engine.url} for engine in engines],
            }
        ],
        "log": {"requests": False},
    }
