"""An engine that stores responses, in few lines, and gateways in front of several that share one store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from gateway.sessions.memory import MemoryStore
from gateway.sessions.responses import Responses
from gateway.sessions.store import ResponseOwner, SessionStore
from gateway.settings import ProbeSettings
from policies.session_window import WindowRules
from tests.backend import Backend, Request, Script, json_script, sse_script
from tests.running import Running, running

NEVER_AGAIN = ProbeSettings(interval_seconds=3600)
RESPONSES = "/v1/responses"


def response(response_id: str, status: str = "completed", text: str = "hello") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "id": "resp_of_a_part"}]
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def events(response_id: str) -> list[bytes]:
    kinds = ("response.created", "response.in_progress", "response.completed")
    return [json.dumps({"type": kind, "response": response(response_id)}).encode() for kind in kinds]


class Engine(Backend):
    """`held` is what it stores; `shape` makes another answer of an id."""

    def __init__(self, name: str, shape: Callable[[str], Script] | None = None) -> None:
        super().__init__(self._answer)
        self.name = name
        self.held: set[str] = set()
        self._shape = shape
        self._count = 0

    def _answer(self, request: Request) -> Script:
        method, path = request.method, request.path
        if path != RESPONSES:
            response_id = path.split("/")[3]
            if response_id not in self.held:
                return _not_found(response_id)
            if method == "DELETE":
                self.held.discard(response_id)
                return json_script({"id": response_id, "deleted": True})
            return json_script(
                response(response_id, "cancelled" if path.endswith("/cancel") else "completed")
            )
        body = request.json()
        earlier = body.get("previous_response_id")
        if earlier and earlier not in self.held:
            return _not_found(earlier)
        self._count += 1
        response_id = body.get("request_id") or f"resp_{self.name}_{self._count}"
        if body.get("store") is not False:
            self.held.add(response_id)
        if self._shape is not None:
            return self._shape(response_id)
        if body.get("stream"):
            return sse_script(*events(response_id))
        return json_script(response(response_id))


def _not_found(response_id: str) -> Script:
    return json_script({"error": {"message": f"no {response_id}", "code": 404}}, status=404)


def shares(gateway: Running, store: SessionStore) -> None:
    """Make a gateway one of the nodes that share `store`."""
    writes: set[asyncio.Task[None]] = set()

    def put(response_id: str, owner: ResponseOwner, ttl_seconds: float) -> None:
        task = asyncio.create_task(store.set_responses([(response_id, owner, ttl_seconds)]))
        writes.add(task)
        task.add_done_callback(writes.discard)

    clock = asyncio.get_running_loop().time
    gateway.gateway.proxy.responses = Responses(gateway.gateway.router.fleet, clock, store.response, put)


@asynccontextmanager
async def nodes(*engines: Backend, count: int = 2, **sections: Any) -> AsyncIterator[list[Running]]:
    """Gateways in front of the same engines that share one store."""
    store = MemoryStore(WindowRules(), 1000, 1 << 20, asyncio.get_running_loop().time)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        sections.setdefault("probes", NEVER_AGAIN)
        gateways = [await stack.enter_async_context(running(*engines, **sections)) for _ in range(count)]
        for gateway in gateways:
            shares(gateway, store)
        yield gateways
