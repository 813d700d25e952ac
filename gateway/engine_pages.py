"""What is asked of one engine beside requests: whether it is well, which models it has, what it is, how busy it is.

Only cheap GETs, one at a time. Which ones is found out once and again when another engine comes up at the address:

- health: vLLM answers `/version` and says its health at `/health`; SGLang's `/health` generates a token and takes over a second, so its
  `/ready` is asked; anything else is judged by its model list.
- dialect: `/version` is vLLM's, `/server_info` SGLang's (older: `/get_server_info`), which also says how it was started. Where that page is
  closed, `/model_info` and `/ready` still tell that it is SGLang.
- load: vLLM's `/metrics`; SGLang's `/v1/loads`, `/get_load` of older releases, or `/metrics`. The first that tells anything is kept.

Limit: what imitates one of these pages is taken for that engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gateway.engine_report import read_loads, read_metrics
from gateway.foreign_page import MOST_METRICS_BYTES, ForeignPages
from policies.dialects import NOTHING_TOLD, Dialect, EngineFlags, EngineReport

_MAX_MODELS = 10_000
_HEALTH_PATHS = (("/version", "/health"), ("/ready", "/ready"), ("/health", "/health"))
"""What is tried, and where to ask for health if it is there."""
_SGLANG_INFO = ("/server_info", "/get_server_info", "/model_info", "/get_model_info")


def _metrics_of(dialect: Dialect) -> Callable[[bytes], EngineReport]:
    return lambda page: read_metrics(page, dialect)


_LOAD_PAGES: dict[Dialect, tuple[tuple[str, Callable[[bytes], EngineReport]], ...]] = {
    Dialect.VLLM: (("/metrics", _metrics_of(Dialect.VLLM)),),
    Dialect.SGLANG: (
        ("/v1/loads?include=core", read_loads),
        ("/get_load", read_loads),
        ("/metrics", _metrics_of(Dialect.SGLANG)),
    ),
    Dialect.UNKNOWN: (),
}


class EnginePages:
    def __init__(self, pages: ForeignPages) -> None:
        self._pages = pages
        self._health_path = ""
        self._dialect: Dialect | None = None
        self._load_pages = _LOAD_PAGES[Dialect.UNKNOWN]
        self.load_path = ""
        """Where load was last told, "" if nowhere."""

    async def health(self) -> str:
        """What is wrong, "" if nothing."""
        if not self._health_path:
            self._health_path = await self._find_health_path()
        path, self._health_path = self._health_path, ""
        answer = await self._pages.get(path)
        if (
            answer.status != 404
        ):  # else another engine came up at this address, as may be behind a broken connection
            self._health_path = path
        return "" if answer.status == 200 else f"{path} answered {answer.status}"

    async def models(self) -> list[dict[str, Any]] | None:
        """The cards, or None where the engine does not tell."""
        content = await self._object("/v1/models")
        cards = content.get("data") if content is not None else None
        if not isinstance(cards, list):
            return None
        return [
            card for card in cards[:_MAX_MODELS] if isinstance(card, dict) and isinstance(card.get("id"), str)
        ]

    async def identify(self) -> tuple[Dialect, EngineFlags]:
        """What the engine is now; also where its load is looked for from here on, and its health if it is another one."""
        dialect, flags = await self._who()
        if self._dialect not in (None, dialect):
            self._health_path = ""
        self._dialect = dialect
        self._load_pages = _LOAD_PAGES[dialect]
        self.load_path = ""
        return dialect, flags

    async def load(self) -> EngineReport | None:
        """None where the engine does not tell."""
        for path, read in self._load_pages:
            if self.load_path in ("", path):
                answer = await self._pages.get(path, MOST_METRICS_BYTES, by_lines=path.endswith("/metrics"))
                report = read(answer.body) if answer.status == 200 else NOTHING_TOLD
                if report != NOTHING_TOLD:
                    self.load_path = path
                    return report
        self.load_path = ""
        return None

    async def _who(self) -> tuple[Dialect, EngineFlags]:
        said = await self._object("/version")
        if said is not None and isinstance(said.get("version"), str):
            return Dialect.VLLM, EngineFlags(version=said["version"])
        for path in _SGLANG_INFO:
            said = await self._object(path)
            if said is not None and "model_path" in said:
                return Dialect.SGLANG, sglang_flags(said)
        return Dialect.SGLANG if self._health_path == "/ready" else Dialect.UNKNOWN, EngineFlags()

    async def _find_health_path(self) -> str:
        for probed, health_path in _HEALTH_PATHS:
            if (await self._pages.get(probed)).status in (200, 503):
                return health_path
        return "/v1/models"

    async def _object(self, path: str) -> dict[str, Any] | None:
        """The JSON object at `path`, None where there is none."""
        answer = await self._pages.get(path)
        if answer.status != 200:
            return None
        try:
            content = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return None
        return content if isinstance(content, dict) else None


def sglang_flags(info: dict[str, Any]) -> EngineFlags:
    """From `/server_info`; `/model_info` has none of these and leaves them unknown."""
    version = info.get("version")

    def told(name: str) -> bool | None:
        value = info.get(name)
        return value if isinstance(value, bool) else None

    return EngineFlags(
        version=version if isinstance(version, str) else "",
        priority_scheduling=told("enable_priority_scheduling"),
        lower_is_urgent=told("schedule_low_priority_values_first") or False,
        tells_cached_tokens=told("enable_cache_report"),
    )
