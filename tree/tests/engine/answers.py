"""What an answer is, for a comparison of two: everything but its ids and its times.

Ids and times are masked by their look, not by their place: `"id": "tiny"` of a model stays, as does
`system_fingerprint`. An id keeps its prefix, since a client may read it (`chatcmpl-*`).

A stream is compared as what its events add up to. An engine joins two tokens into one event when it is
quicker than its HTTP side, so where the events part is chance; what they say, their fields and their
order within a choice are not.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# chatcmpl-1f…, cmpl-…-0, chatcmpl-tool-…, call_…, resp_…, msg_…, modelperm-…, and SGLang's 32 bare digits.
# vLLM takes the part after the first "-" from `x-request-id`, which a gateway sets, so it may look like anything.
_ID = re.compile(r"(chatcmpl-tool-|chatcmpl-|cmpl-|modelperm-|call_|resp_|msg_|rs_|fc_).+|()[0-9a-f]{32}")
_TIMES = frozenset({"created", "created_at", "completed_at"})
# xgrammar puts the time of day into its complaint about a schema.
_CLOCK = re.compile(r"\[\d\d:\d\d:\d\d\]")
# Numbers the events of a stream, and where the events part is chance.
_COUNTERS = frozenset({"sequence_number"})
# Headers of one connection or one server, of the length of the ids, and those that a gateway adds.
_OWN_HEADERS = frozenset(
    {"date", "server", "connection", "keep-alive", "transfer-encoding", "content-length", "x-request-id"}
)
_GATEWAY_PREFIX = "x-headrace-"
# Fields of a stream's events that hold the next piece of a text.
_PIECES = frozenset({"content", "reasoning_content", "reasoning", "refusal", "text", "arguments", "delta"})


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: object

    def without_wording(self) -> "Answer":
        """For what the gateway answers itself: an error's message is its own, and so are most headers."""
        content_type = {"content-type": self.headers["content-type"]}
        return Answer(self.status, content_type, _without_message(self.body))


def answer(status: int, headers: Mapping[str, str], body: object) -> Answer:
    kept = {name.lower(): value for name, value in headers.items()}
    kept = {
        name: value
        for name, value in kept.items()
        if name not in _OWN_HEADERS and not name.startswith(_GATEWAY_PREFIX)
    }
    return Answer(status, kept, masked(body))


def masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "*" if key in _TIMES | _COUNTERS and isinstance(inner, int | float) else masked(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, str):
        found = _ID.fullmatch(value)
        return (found[1] or "") + "*" if found else _CLOCK.sub("[*]", value)
    return value


def joined(events: Iterable[dict[str, Any]]) -> Any:
    """The one object that a stream's events add up to."""
    whole: Any = {}
    for event in events:
        whole = _join(whole, event)
    return whole


def _join(old: Any, new: Any, field: str = "") -> Any:
    if old is None or new is None:
        return new if old is None else old
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _join(old.get(key), inner, key) for key, inner in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        if any("index" in item for item in old + new if isinstance(item, dict)):
            return _join_by_index(old, new)
        return old + new
    if isinstance(old, str) and isinstance(new, str) and field in _PIECES:
        return old + new
    return new


def _join_by_index(old: list[Any], new: list[Any]) -> list[Any]:
    """Choices, and tool calls in a choice: each event names those it adds to."""
    by_index = {item["index"]: item for item in old}
    for item in new:
        by_index[item["index"]] = _join(by_index.get(item["index"]), item)
    return [by_index[index] for index in sorted(by_index)]


def _without_message(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_message(inner) for key, inner in value.items() if key != "message"}
    return value
