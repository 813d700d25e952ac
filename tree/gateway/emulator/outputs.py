"""What an answer says: a function of the seed, the prompt and the request's parameters.

Three sorts: words from the vocabulary, as many as the limit allows or up to a stop string; the arguments of
one tool call; a value that fits the requested JSON schema. The last two are cut into tokens like a prompt is,
and end by themselves unless the request's own limit cuts them short. A tool call that is cut short becomes
plain text, as with the real engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.emulator import fields, schema_instance
from gateway.emulator.errors import refused
from gateway.emulator.fields import Body
from gateway.emulator.tokens import split
from gateway.emulator.vocabulary import Vocabulary


@dataclass(slots=True, frozen=True)
class Output:
    """One choice. `pieces` are its tokens, escaped for the inside of a JSON string."""

    pieces: list[bytes]
    finish_reason: bytes = b"length"
    stop_reason: bytes = b"null"
    """As JSON: the stop string that ended the answer."""
    tool_name: bytes = b""
    """As the inside of a JSON string; when given, the pieces are the arguments of a call."""

    @property
    def stopped(self) -> bool:
        return self.finish_reason != b"length"


def words(vocabulary: Vocabulary, fingerprint: int, limit: int, stops: Sequence[str]) -> Output:
    pieces = vocabulary.words(fingerprint, limit)
    if not stops:
        return Output(pieces)
    text = b"".join(pieces)
    found = [(at, stop) for stop in stops if stop and (at := text.find(stop.encode())) >= 0]
    if not found:
        return Output(pieces)
    cut, stop = min(found, key=lambda hit: hit[0] + len(hit[1].encode()))
    end = cut + len(stop.encode())
    kept: list[bytes] = []
    position = 0
    for piece in pieces:
        if position >= end:
            break
        kept.append(piece[: max(0, cut - position)])
        position += len(piece)
    return Output(kept, b"stop", orjson.dumps(stop))


def structured(text: str, limit: int, finish_reason: bytes = b"stop", tool_name: str = "") -> Output:
    """`text` whole, or as much of it as `limit` tokens hold."""
    pieces = [_escaped(token) for token in split(text)]
    if len(pieces) > limit:
        return Output(pieces[:limit])
    return Output(pieces, finish_reason, tool_name=_escaped(tool_name))


def tool_call(body: Body, limit: int) -> Output | None:
    """The call this chat request gets, if it gets one: whenever tools are offered, but after a tool's result
    only when forced."""
    tools = fields.items(body, "tools")
    choice = body.get("tool_choice")
    if not tools:
        if choice not in (None, "none"):
            raise refused("When using `tool_choice`, `tools` must be set.", "tool_choice")
        return None
    if choice == "none":
        return None
    if isinstance(choice, dict):
        name = choice.get("function", {}).get("name")
        offered = [tool["function"] for tool in tools if _name(tool) == name]
        if not offered:
            message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise refused(message, "tool_choice")
        return _call(offered[0], limit, b"stop")
    last = body["messages"][-1]
    if choice != "required" and last.get("role") in ("tool", "function"):
        return None
    return _call(tools[0]["function"], limit, b"tool_calls") if _name(tools[0]) else None


def json_answer(body: Body, limit: int) -> Output | None:
    """The structured answer this request wants, if it wants one."""
    wanted = fields.record(body, "response_format")
    match wanted.get("type"):
        case "json_schema":
            schema = fields.record(wanted, "json_schema").get("schema")
            return structured(orjson.dumps(schema_instance.instance(schema)).decode(), limit)
        case "json_object":
            return structured('{"answer":"water"}', limit)
        case _:
            return None


def _call(function: dict[str, Any], limit: int, finish_reason: bytes) -> Output:
    arguments = schema_instance.instance(function.get("parameters") or {"type": "object"})
    return structured(orjson.dumps(arguments).decode(), limit, finish_reason, function["name"])


def _name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _escaped(text: str) -> bytes:
    return orjson.dumps(text)[1:-1]
