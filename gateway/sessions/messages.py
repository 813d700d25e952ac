"""A prompt from what a session's window holds and what its client sent: bytes put between bytes, nothing written anew.

In front of the request's new messages go the system message and the window's turns, inside the client's own `messages` array; every other byte of
the body stays as it came. Messages of the roles `system` and `developer` with which the request begins take the pinned one's place and are pinned
from then on; later ones are part of the turn like any other message.

A turn that was cut is left out unless `replays_cut`, and so are turns that follow one that was left out: they begin with the results of calls that
the engine would not see.
The parsed prompt that comes with it (`fields`) is for the decision core, which sees sizes, prefixes and texts as if the client had sent all of it.
Raises `Refused` where there is no list of messages, or nothing in it but system messages.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import orjson

from gateway.errors import Refused
from gateway.sessions.store import Turn, Window
from gateway.splice import element_spans, member_span
from policies.terms import Refusal

_SYSTEM_ROLES = ("system", "developer")
_BYTES_PER_TOKEN = 4


class Prompt(NamedTuple):
    """`body` and `fields` are of the whole prompt; `messages` and `system` what the client sent of it, as `Append` wants them.

    `follows`: the new messages begin with the result of a tool. `earlier_tokens`: of `prompt_tokens`, what is not new.
    """

    body: bytes
    fields: dict[str, Any]
    messages: bytes
    system: bytes | None
    follows: bool
    earlier_tokens: int


def with_window(body: bytes, fields: dict[str, Any], window: Window, replays_cut: bool) -> Prompt:
    """`fields` is what `body` decodes to; it stays as it is."""
    messages = fields.get("messages")
    span = member_span(body, "messages", is_known="messages" in fields)
    if type(messages) is not list or not messages or span is None:
        raise Refused(Refusal.BAD_REQUEST, "'messages' must be a list with at least one message", "messages")
    spans = element_spans(body, span)
    assert len(spans) == len(messages), "the array is the one that was decoded"
    system_count = 0
    while system_count < len(messages) and _role(messages[system_count]) in _SYSTEM_ROLES:
        system_count += 1
    if system_count == len(messages):
        raise Refused(
            Refusal.BAD_REQUEST, "'messages' has nothing to answer to beside the system message", "messages"
        )
    new = body[spans[system_count][0] : spans[-1][1]]
    turns = replayed(window, replays_cut)
    parts = [turn.messages for turn in turns]
    system: bytes | None = None
    if system_count:
        system = body[spans[0][0] : spans[system_count - 1][1]]
    elif window.system:
        parts.insert(0, window.system)
    if parts:
        earlier = b",".join(parts)
        at = spans[system_count][0]
        body = b"%b%b,%b" % (body[:at], earlier, body[at:])
        fields = fields | {
            "messages": [*messages[:system_count], *messages_of(earlier), *messages[system_count:]]
        }
    pinned = window.system if system is None else system
    earlier_tokens = sum(turn.tokens for turn in turns) + estimated_tokens(len(pinned))
    return Prompt(body, fields, new, system, _role(messages[system_count]) == "tool", earlier_tokens)


def replayed(window: Window, replays_cut: bool) -> list[Turn]:
    """The turns of a window that are part of the next prompt."""
    turns: list[Turn] = []
    was_left_out = False
    for turn in window.turns:
        was_left_out = (turn.is_cut and not replays_cut) or (turn.follows and was_left_out)
        if not was_left_out:
            turns.append(turn)
    return turns


def messages_of(stored: bytes) -> list[Any]:
    """What a turn's bytes decode to, as leniently as the body that they came from was read."""
    text = b"[%b]" % stored
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = json.loads(text.decode("utf-8", "surrogatepass"))
    assert isinstance(found, list)
    return found


def estimated_tokens(size_bytes: int) -> int:
    """Where no engine counted."""
    return size_bytes // _BYTES_PER_TOKEN


def _role(message: Any) -> Any:
    return message.get("role") if type(message) is dict else None
