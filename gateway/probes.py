"""Health and models of the backends: one task per backend, on connections of its own, so that load cannot starve it.

Each round asks for health, and for `/v1/models` while healthy. What is asked is found out once per backend: vLLM answers `/version` and
says its health at `/health`; SGLang's `/health` generates a token and takes over a second, so its `/ready` is asked; anything else is
judged by its model list. Only cheap GETs are sent.

Settings: `ProbeSettings`. A refused connection takes a backend out at once, other failures after `probes.failures` in a row.
Limit: an engine that hangs but answers `/health` (vLLM does) is found by its requests, not here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpx

from gateway.configuration import backend_name
from gateway.models import ModelCatalogue
from gateway.settings import BackendSettings, ProbeSettings
from policies.terms import BackendId
from routing.router import Router

_logger = logging.getLogger("headrace")
_MAX_MODELS = 10_000


class Probes:
    def __init__(self, router: Router, catalogue: ModelCatalogue, changed: Callable[[], None]) -> None:
        """`changed` is called after each result: a backend's return may free waiting requests."""
        self._router = router
        self._catalogue = catalogue
        self._changed = changed
        self._tasks: dict[BackendSettings, asyncio.Task[None]] = {}
        self._rules = ProbeSettings()

    def configure(self, backends: Iterable[BackendSettings], rules: ProbeSettings) -> None:
        """One task per configured backend; those of backends that left end."""
        wanted = set(backends)
        replaced = rules != self._rules
        self._rules = rules
        for settings in [known for known in self._tasks if replaced or known not in wanted]:
            self._tasks.pop(settings).cancel()
        for settings in wanted:
            if settings not in self._tasks:
                self._tasks[settings] = asyncio.create_task(self._watch(settings))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, settings: BackendSettings) -> None:
        backend_id = BackendId(backend_name(settings))
        was_healthy: bool | None = None
        async with _client(settings, self._rules.timeout_seconds) as client:
            probe = _Probe(client)
            while True:
                healthy, refused, problem = await self._ask(probe, backend_id)
                self._router.probed(backend_id, healthy, refused, asyncio.get_running_loop().time())
                self._changed()
                if healthy != was_healthy:
                    level = logging.INFO if healthy else logging.WARNING
                    _logger.log(
                        level, "backend %s is %s", backend_id, "up" if healthy else f"not healthy: {problem}"
                    )
                    was_healthy = healthy
                await asyncio.sleep(self._rules.interval_seconds)

    async def _ask(self, probe: _Probe, backend_id: BackendId) -> tuple[bool, bool, str]:
        """Whether it is healthy, whether nobody listens there, and what is wrong."""
        try:
            problem = await probe.health()
            if not problem:
                cards = await probe.models()
                if cards is not None:
                    self._catalogue.learn(backend_id, cards)
                    self._router.learn_models(backend_id, frozenset(str(card["id"]) for card in cards))
        except httpx.ConnectError as error:
            return False, True, str(error) or "connection refused"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return False, False, f"{type(error).__name__} {error}".strip()
        except Exception as error:  # a probe that ends for good would leave its backend as it is, unseen
            _logger.exception("the probe of %s failed", backend_id)
            return False, False, f"{type(error).__name__} {error}".strip()
        return not problem, False, problem


class _Probe:
    """What is asked of one backend, once it is known what it is."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._health_path = ""

    async def health(self) -> str:
        """What is wrong, "" if nothing."""
        if not self._health_path:
            self._health_path = await self._find_health_path()
        answer = await self._client.get(self._health_path)
        if answer.status_code == 404:
            self._health_path = ""  # another engine came up at this address
        return (
            ""
            if answer.status_code == 200
            else f"{self._health_path or 'its health path'} answered {answer.status_code}"
        )

    async def models(self) -> list[dict[str, Any]] | None:
        """The cards, or None where the engine does not tell."""
        answer = await self._client.get("/v1/models")
        if answer.status_code != 200:
            return None
        try:
            cards = answer.json()["data"]
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(cards, list):
            return None
        return [
            card for card in cards[:_MAX_MODELS] if isinstance(card, dict) and isinstance(card.get("id"), str)
        ]

    async def _find_health_path(self) -> str:
        for probed, health_path in (("/version", "/health"), ("/ready", "/ready"), ("/health", "/health")):
            if (await self._client.get(probed)).status_code in (200, 503):
                return health_path
        return "/v1/models"


def _client(settings: BackendSettings, timeout_seconds: float) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    # A context of trusted authorities costs megabytes: only where there is something to verify.
    verify: ssl.SSLContext | bool = False
    if settings.url.startswith("https:"):
        verify = ssl.create_default_context(cafile=settings.ca_file or None)
    base_url, transport = settings.url, None
    if settings.url.startswith("unix:"):
        base_url = "http://localhost"
        transport = httpx.AsyncHTTPTransport(uds=settings.url.removeprefix("unix://"))
    return httpx.AsyncClient(
        base_url=base_url,
        transport=transport,
        verify=verify,
        headers=headers,
        timeout=timeout_seconds,
        trust_env=False,
        limits=httpx.Limits(max_connections=1),
    )
