"""What a request's headers say, worked out once for the equal heads of one connection.

A client that keeps its connection sends the same headers again and again; only the length of the body differs. Comparing the two lists costs
less than going through them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.headers import forwarded, header_lines, usable_request_id
from gateway.tagging import Client, Tagging
from gateway.tenants import key_in, without_credentials

Pairs = Sequence[tuple[bytes, bytes]]


class ClientHead:
    """`lines` go to an engine as they are; `keyless_lines` where it has a key of its own, or where the client's was for this gateway.

    `request_id` is "" where none is usable, `key` empty where the client sent none.
    """

    __slots__ = (
        "_after",
        "_before",
        "_client",
        "_length_at",
        "content_type",
        "key",
        "keyless_lines",
        "lines",
        "request_id",
    )

    def __init__(self, headers: Pairs) -> None:
        self._length_at = -1
        self._client: Client | None = None
        self.content_type = b""
        self.request_id = ""
        for index, (name, value) in enumerate(headers):
            if name == b"content-length":
                self._length_at = index
            elif name == b"x-request-id" and not self.request_id and usable_request_id(value):
                self.request_id = value.decode("ascii")
            elif name == b"content-type" and not self.content_type:
                self.content_type = value
        passed = forwarded(headers)
        self.lines = header_lines(passed)
        self.key = key_in(headers)
        self.keyless_lines = header_lines(without_credentials(passed, self.key))
        self._before = list(headers[: self._length_at]) if self._length_at >= 0 else list(headers)
        self._after = list(headers[self._length_at + 1 :])

    def is_of(self, headers: Pairs) -> bool:
        """Whether these headers say the same, the length of the body apart."""
        at = self._length_at
        if at < 0:
            return headers == self._before
        return (
            len(headers) > at
            and headers[at][0] == b"content-length"
            and headers[:at] == self._before
            and headers[at + 1 :] == self._after
        )

    def client(self, headers: Pairs, tagging: Tagging) -> Client:
        """Who sent it and what it asks for, by the present configuration; `Refused` where the key is wrong."""
        client = self._client
        if client is None or client.tagging is not tagging:
            client = self._client = tagging.client(headers)
        return client

    def content_length(self, headers: Pairs) -> int | None:
        """Of a request whose head this is."""
        if self._length_at < 0:
            return None
        value = headers[self._length_at][1]
        return int(value) if value.isdigit() else None
