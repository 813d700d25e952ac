"""One request as the proxy knows it before it chose a backend: who asks, for what, and the bytes an engine is to get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.body import NOTHING_SEEN, for_engine, view_form, view_json
from gateway.client_head import ClientHead
from gateway.errors import Refused
from gateway.headers import usable_request_id
from gateway.paths import Kind, Route
from gateway.tagging import Client
from gateway.tenants import without_keys


class Request:
    __slots__ = (
        "body",
        "client",
        "content_length",
        "head",
        "is_known",
        "is_responses",
        "keep_usage_back",
        "kind",
        "limits",
        "method",
        "model",
        "stream_form",
        "target",
        "view",
    )

    def __init__(self, scope: Any, route: Route, head: ClientHead, client: Client) -> None:
        self.method: str = scope["method"]
        self.kind = route.kind
        self.is_known = route.is_known
        self.is_responses = route.is_responses
        self.limits = route.limits
        self.stream_form = route.stream_form
        query: bytes = scope["query_string"]
        if query and client.tagging.tells_tenants_apart:
            query = without_keys(query.decode("latin-1"), head.key).encode("latin-1")
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.target = raw_path + b"?" + query if query else raw_path
        self.head = head
        self.client = client
        self.content_length = head.content_length(scope["headers"])
        self.body = b""
        self.view = NOTHING_SEEN
        self.model = ""
        self.keep_usage_back = False

    def take(self, body: bytes, aliases: Mapping[str, str]) -> None:
        self.body = body
        if self.method not in ("POST", "PUT", "PATCH") or self.kind is Kind.OTHER:
            return
        if not body and self.kind is Kind.JSON:
            return  # some calls have none, as `/v1/responses/{id}/cancel`
        try:
            self.view = view_form(body, self.head.content_type) if self.kind is Kind.FORM else view_json(body)
        except Refused:
            if self.is_known:
                raise
            return
        self.model = aliases.get(self.view.model, self.view.model)
        self.body, self.keep_usage_back = for_engine(body, self.view, self.kind, self.model)

    def named_id(self) -> str:
        """The request's id as the client names it: in `x-request-id`, else in the body, as vLLM takes it; "" where neither is usable.

        vLLM prefers the header, which the gateway always sends.
        """
        if self.head.request_id:
            return self.head.request_id
        named = self.view.fields.get("request_id")
        if isinstance(named, str) and named.isascii() and usable_request_id(named.encode()):
            return named
        return ""

    def has_body(self) -> bool:
        return bool(self.body) or self.content_length is not None or self.method in ("POST", "PUT", "PATCH")
