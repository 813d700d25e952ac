"""The assistant's message, out of an engine's answer while it passes: what a session keeps of it.

Of a plain answer the message of the first choice, byte for byte, without the members that say nothing (`null`, and a list of calls that is empty: some
engines refuse to read back what they wrote). Of a stream one message made of the deltas of choice 0: text, refusal, reasoning under the name that the engine
gives it, tool calls by their index. Other members of deltas (log probabilities, token ids) are not kept, nor is a second choice (`n`).

Of a stream that broke off what came is kept without its tool calls, whose arguments may be half written and which nobody will answer.
Bounds: `limit_bytes` of text; a message beyond it is not kept (`too_large`). What is held beside it is the incomplete event at the end of what came.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from gateway.splice import TooDeep, element_spans, member, member_span, without_member

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_BROKEN = ("abort", "error")
"""Reasons to finish that mean the answer is not whole."""
_LIST_OVERHEAD_BYTES = 64
"""Of a tool call beside its texts."""


def plain_message(body: bytes) -> bytes | None:
    """None where the answer is not one of a chat, was given up by the engine, or is too deep to be looked over."""
    try:
        return _plain_message(body)
    except TooDeep:
        return None


def _plain_message(body: bytes) -> bytes | None:
    fields = _decoded(body)
    choices = fields.get("choices") if isinstance(fields, dict) else None
    if not isinstance(choices, list):
        return None
    span = member_span(body, "choices")
    if span is None:
        return None
    for choice, (start, end) in zip(choices, element_spans(body, span), strict=True):
        if not isinstance(choice, dict) or choice.get("index", 0) != 0:
            continue
        message = choice.get("message")
        text = member(body[start:end], "message")
        if not isinstance(message, dict) or text is None or choice.get("finish_reason") in _BROKEN:
            return None
        for name, value in message.items():
            if (value is None and name != "content") or (name == "tool_calls" and value == []):
                text = without_member(text, name)
        return text
    return None


class StreamCapture:
    __slots__ = (
        "_bytes_left",
        "_calls",
        "_data",
        "_data_bytes",
        "_pending",
        "_pending_bytes",
        "_role",
        "_texts",
        "_unfinished",
        "is_broken",
        "too_large",
    )

    def __init__(self, limit_bytes: int, choices: int = 1) -> None:
        """`choices` is how many the request asked for: the answer is finished when all of them are."""
        self._bytes_left = limit_bytes
        self._pending: list[bytes] = []
        """The line that has not ended yet, as it came: joined once, for a line of single bytes would cost the square of its length."""
        self._pending_bytes = 0
        self._data: list[bytes] = []
        """Lines of the event that has not ended yet."""
        self._data_bytes = 0
        self._role = "assistant"
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, _Call] = {}
        self._unfinished = choices
        self.is_broken = False
        """The engine gave the answer up, or said that it failed."""
        self.too_large = False

    @property
    def has_finish(self) -> bool:
        """The engine gave its reason to finish."""
        return self._unfinished <= 0

    def feed(self, data: bytes) -> None:
        pending = self._pending
        pending.append(data)
        self._pending_bytes += len(data)
        has_line_end = b"\n" in data or b"\r" in data or (len(pending) > 1 and pending[-2] == b"\r")
        if not has_line_end and self._pending_bytes <= max(self._bytes_left, 0) + _EVENT_BYTES:
            return
        text = b"".join(pending)
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # the first half of a line end, or all of it
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        for line in lines:
            self._line(line)
        if self.too_large or len(rest) > self._bytes_left + _EVENT_BYTES:
            self._give_up()
            rest = rest[:_DATA_BYTES]  # enough to tell whose line goes on
        self._pending = [part for part in (rest, held) if part]
        self._pending_bytes = len(rest) + len(held)

    def end(self) -> None:
        """Nothing more comes: the last event may lack its blank line."""
        pending, self._pending = b"".join(self._pending), []
        self._pending_bytes = 0
        self._line(pending.rstrip(b"\r"))
        self._line(b"")

    def message(self, is_cut: bool = False) -> bytes | None:
        """The whole message; None where nothing was said, or too much."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        calls = [] if is_cut else [self._calls[index].json() for index in sorted(self._calls)]
        if self.too_large or (is_cut and not any(texts.values())):
            return None
        message: dict[str, Any] = {"role": self._role, "content": None if calls else ""}
        message |= {name: texts[name] for name in _TEXTS if texts.get(name)}
        if calls:
            message["tool_calls"] = calls
        return _encoded(message)

    def _line(self, line: bytes) -> None:
        if line:
            if line.startswith(b"data:"):
                self._data_bytes += len(line)
                if self._data_bytes <= max(self._bytes_left, 0) + _EVENT_BYTES:
                    self._data.append(line[5:].removeprefix(b" "))
                else:  # an event of countless lines
                    self._data = []
                    self._give_up()
            return
        self._data_bytes = 0
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data = []
            if data != b"[DONE]":
                self._event(data)

    def _event(self, data: bytes) -> None:
        fields = _decoded(data)
        if not isinstance(fields, dict):
            return
        if isinstance(fields.get("error"), dict):
            self.is_broken = True
        choices = fields.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            reason = choice.get("finish_reason")
            if reason:
                self._unfinished -= 1
            if choice.get("index", 0) == 0:
                self.is_broken = self.is_broken or (isinstance(reason, str) and reason in _BROKEN)
                delta = choice.get("delta")
                if isinstance(delta, dict) and not self.too_large:
                    self._delta(delta)

    def _delta(self, delta: dict[str, Any]) -> None:
        role = delta.get("role")
        if isinstance(role, str) and role:
            self._role = role
        for name in _TEXTS:
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._texts.setdefault(name, []).append(text)
                self._spend(text)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if not isinstance(call, dict):
                continue
            index = call.get("index")
            if not isinstance(index, int):
                index = max(self._calls, default=0)
            known = self._calls.get(index)
            if known is None:
                known = self._calls[index] = _Call()
                self._bytes_left -= _LIST_OVERHEAD_BYTES
            for text in known.add(call):
                self._spend(text)

    def _spend(self, text: str) -> None:
        self._bytes_left -= len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self._bytes_left < 0:
            self._give_up()

    def _give_up(self) -> None:
        self.too_large = True
        self._texts.clear()
        self._calls.clear()


_EVENT_BYTES = 16 * 1024
"""What an event may hold beside its text: token ids, log probabilities."""
_DATA_BYTES = 5


class _Call:
    __slots__ = ("arguments", "id", "name", "type")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.type = "function"
        self.arguments: list[str] = []

    def add(self, delta: dict[str, Any]) -> list[str]:
        """The texts that came with it. Names come whole and may be repeated; only arguments come in parts."""
        function = delta.get("function")
        if not isinstance(function, dict):
            function = {}
        new: list[str] = []
        for text, holder in ((delta.get("id"), "id"), (function.get("name"), "name")):
            if isinstance(text, str) and text and not getattr(self, holder):
                setattr(self, holder, text)
                new.append(text)
        if isinstance(delta.get("type"), str) and delta["type"]:
            self.type = delta["type"]
        arguments = function.get("arguments")
        if isinstance(arguments, str) and arguments:
            self.arguments.append(arguments)
            new.append(arguments)
        return new

    def json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": self.type, "function": function}


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:  # halves of surrogate pairs
            return json.loads(data)
        except (ValueError, RecursionError):
            return None


def _encoded(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message)
    except (
        TypeError
    ):  # a half of a surrogate pair; two that came apart are one character again when they are escaped
        return json.dumps(message, separators=(",", ":")).encode()
