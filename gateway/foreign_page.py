"""One page of somebody else's server, as the gateway asks for it on its own account: bounded in time and in size, whole or not at all."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import httpx

MOST_BYTES = 16 * 1024 * 1024
MOST_METRICS_BYTES = 2 * 1024 * 1024
"""To search so much takes 2 ms, for which nothing else has its turn. The largest page seen has 250 KB."""


class UnusablePageError(httpx.HTTPError):
    """It came, but not in a form that can be read."""


class Page(NamedTuple):
    status: int
    body: bytes


async def get_page(
    client: httpx.AsyncClient, url: str, most_bytes: int = MOST_BYTES, *, by_lines: bool = False
) -> Page:
    """`httpx.HTTPError` where it does not come, takes longer than the client's timeout in all, is larger than `most_bytes` or compressed.

    `by_lines`: of a body whose end only the connection's end shows, which may be any end, what follows the last whole line is left out.
    """
    seconds = client.timeout.read
    try:
        async with asyncio.timeout(seconds), client.stream("GET", url) as answer:
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise UnusablePageError("came compressed, though that was not asked for")
            parts: list[bytes] = []
            size = 0
            async for part in answer.aiter_raw():
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    raise UnusablePageError(f"has more than {most_bytes} bytes")
    except TimeoutError:
        raise httpx.ReadTimeout(f"was not there within {seconds} s") from None
    body = b"".join(parts)
    if by_lines and answer.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
        body = body[: body.rfind(b"\n") + 1]
    return Page(answer.status_code, body)
