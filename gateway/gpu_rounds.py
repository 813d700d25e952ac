"""The state of the backends' GPUs, read again and again on connections of its own: one task per address, whose page may tell of several backends.

Settings: `GpuSettings` of each backend; of several at one address the shortest interval and timeout count. A page that does not come, is not 200 or too large (`gateway.foreign_page`)
tells nothing: what was known ages, and is unknown once it is stale.
What an address tells and lacks is one log line, and another only when that changes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from urllib.parse import quote, urlsplit

from gateway.foreign_page import MOST_METRICS_BYTES, ForeignPages
from gateway.gpu_report import GpuPage, read_gpu, tells_nothing, untold
from gateway.gpu_settings import GpuSettings
from gateway.settings import BackendSettings
from gateway.upstream.failures import UpstreamFailure
from gateway.watches import Watches
from policies.gpu_report import GpuReport
from policies.terms import BackendId

_logger = logging.getLogger("headrace")
_SHORT_BYTES = 32 * 1024
"""What is longer, as of a Prometheus that federates a whole fleet, takes up to 25 ms to parse: in a thread, so that others have their turns."""
_IN_QUERIES = "=&%/?:@!$'()*+,;[]"
"""What stands there as it is; the rest, such as the braces of /federate's `match[]`, is quoted."""
GpuListener = Callable[[BackendId, GpuReport, float, float], None]
"""Told the report, when it was asked for, and until when it holds."""
Members = tuple[tuple[BackendId, GpuSettings], ...]


class GpuRounds:
    def __init__(self, listener: GpuListener) -> None:
        self._listener = listener
        self._watches = Watches(self._watch)
        self.asked_since: dict[BackendId, float] = {}
        """Of each backend whose GPUs are asked for."""

    def configure(self, backends: Iterable[tuple[BackendId, GpuSettings]]) -> None:
        at: dict[str, list[tuple[BackendId, GpuSettings]]] = {}
        before, self.asked_since = self.asked_since, {}
        now = asyncio.get_running_loop().time()
        for id, settings in backends:
            self.asked_since[id] = before.get(id, now)
            at.setdefault(settings.url, []).append((id, settings))
        self._watches.keep(tuple(members) for members in at.values())

    async def close(self) -> None:
        await self._watches.close()

    async def _watch(self, members: Members) -> None:
        clock = asyncio.get_running_loop().time
        interval = min(settings.interval_seconds for _, settings in members)
        said: dict[BackendId, str] = {}
        server, path = _parts(members[0][1].url)
        timeout_seconds = min(settings.timeout_seconds for _, settings in members)
        with closing(ForeignPages(server, timeout_seconds)) as pages:
            while True:
                asked_at = clock()
                await self._round(pages, path, members, asked_at, said)
                # Spread, so that the rounds of a fleet do not fall together.
                due = asked_at + interval * random.uniform(0.9, 1.0)  # noqa: S311
                await asyncio.sleep(max(0.0, due - clock()))

    async def _round(
        self, pages: ForeignPages, path: str, members: Members, asked_at: float, said: dict[BackendId, str]
    ) -> None:
        try:
            text, problem = await _page(pages, path)
            page, unix_now = GpuPage(text), time.time()
            for id, settings in members:
                if len(text) <= _SHORT_BYTES:
                    report = read_gpu(page, settings, unix_now)
                else:
                    report = await asyncio.to_thread(read_gpu, page, settings, unix_now)
                if not tells_nothing(report):
                    self._listener(id, report, asked_at, asked_at + settings.stale_seconds)
                _say(id, problem or _lacking(report), said)
        except Exception:  # a task that ended for good would leave its numbers unknown, unseen
            _logger.exception("reading the state of GPUs failed")


def _parts(url: str) -> tuple[BackendSettings, str]:
    """The server, and what it is asked for."""
    parts = urlsplit(url)
    query = f"?{quote(parts.query, safe=_IN_QUERIES)}" if parts.query else ""
    return BackendSettings(url=f"{parts.scheme}://{parts.netloc}"), (parts.path or "/") + query


async def _page(pages: ForeignPages, path: str) -> tuple[bytes, str]:
    """The page, and what is wrong where there is none."""
    try:
        page = await pages.get(path, MOST_METRICS_BYTES, by_lines=True)
    except UpstreamFailure as error:
        return b"", str(error)
    return (page.body, "") if page.status == 200 else (b"", f"answered {page.status}")


def _lacking(report: GpuReport) -> str:
    if tells_nothing(report):
        return "tells nothing of GPUs of this backend"
    lacking = ", ".join(untold(report))
    return f"told without {lacking}" if lacking else "told"


def _say(id: BackendId, text: str, said: dict[BackendId, str]) -> None:
    if said.get(id) != text:
        said[id] = text
        level = logging.INFO if text == "told" else logging.WARNING
        _logger.log(level, "GPUs of backend %s: %s", id, text)
