"""The header by which vLLM tells its load to who asks for it with `endpoint-load-metrics-format`, on plain answers alone."""

from __future__ import annotations

from gateway.emulator.answer import Answer
from gateway.emulator.scheduler import Engine

ASKED_BY = b"endpoint-load-metrics-format"
_LINES = {
    b"text": b"endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=%b, named_metrics.kv_cache_usage_perc=%b\r\n",
    b"json": b'endpoint-load-metrics: JSON {"named_metrics": {"num_requests_waiting": %b, "kv_cache_usage_perc": %b}}\r\n',
}


def load_line(form: bytes, engine: Engine[Answer]) -> bytes:
    """As the engine stands now; empty where `form` is neither of both."""
    line = _LINES.get(form.lower())
    if line is None:
        return b""
    told = (float(len(engine.waiting)), float(engine.blocks.usage()))
    return line % tuple(repr(value).encode() for value in told)
