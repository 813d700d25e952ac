"""What a client asks for beside its prompt: business type, lane, session and its history, tenant, deadline, path, pool, backend.

Decides nothing: reads the gateway's own headers and the names that other gateways and engines gave to the same things (`HEADERS` and
`FIELDS`, in order of precedence), so that a client which already speaks one of them needs no change. What is unknown or malformed
counts as not said, and the next source is asked: a hint is never an error. `policies.trust` says which of them count.
Urgency in numbers never asks for the emergency lane; only a name does. RFC 9218 `u` 0 to 2 is interactive (browsers send 1 with what a
page fetches), 3 its default and so nothing, 4 and 5 standard, 6 and 7 batch; Dynamo's numbers rise with urgency, 0 is its default;
the body's `priority` is vLLM's, which falls (0 is its default), or SGLang's, which rises, as the caller says.
Bounds: texts of 1 to `MAX_TEXT` printable ASCII characters without spaces, deadlines above 0 ms and at most a day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from policies.terms import CachePath, Lane

MAX_TEXT = 256
MAX_DEADLINE_MS = 86_400_000.0


class Hints(NamedTuple):
    """What was said; the defaults mean nothing was. `fairness` names a part of the client's own traffic; `path` is hot or cold."""

    business: str = ""
    lane: Lane | None = None
    session: str = ""
    tenant: str = ""
    deadline_ms: float | None = None
    path: CachePath | None = None
    pool: str = ""
    backend: str = ""
    fairness: str = ""
    relegate: bool = False
    """Late is better than never: where the deadline cannot be met, batch instead of a refusal."""
    history: bool = False
    """The client sends what is new of its session; what was said before is to be put in front of it."""
    session_seq: str = ""
    """How many turns the client takes its session to have, as it wrote it: the one hint that is a condition, so a malformed one has to be seen."""


NO_HINTS = Hints()

_TEXT = re.compile(rb"[!-~]{1,%d}" % MAX_TEXT)
_NUMBER = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{0,9})?")
_INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
_URGENCY = re.compile(rb"(?:^|,)[ \t]*u=([0-7])(?![0-9.])")
_URGENCIES: Mapping[bytes, Lane] = {
    **dict.fromkeys((b"0", b"1", b"2"), Lane.INTERACTIVE),
    **dict.fromkeys((b"4", b"5"), Lane.STANDARD),
    **dict.fromkeys((b"6", b"7"), Lane.BATCH),
}

_LANES: Mapping[bytes, Lane] = {
    b"emergency": Lane.EMERGENCY,
    b"interactive": Lane.INTERACTIVE,
    b"high": Lane.INTERACTIVE,
    b"standard": Lane.STANDARD,
    b"normal": Lane.STANDARD,
    b"batch": Lane.BATCH,
    b"low": Lane.BATCH,
}
_PATHS: Mapping[bytes, CachePath] = {path.encode(): path for path in CachePath}
_SMG_CLASSES: Mapping[bytes, Lane] = {
    b"system": Lane.EMERGENCY,
    b"interactive": Lane.INTERACTIVE,
    b"bulk": Lane.BATCH,
}
_SERVICE_TIERS: Mapping[object, Lane] = {"priority": Lane.INTERACTIVE, "flex": Lane.BATCH}
"""OpenAI's; `auto`, `default` and `scale` say nothing about urgency."""


def _text(value: bytes) -> str | None:
    value = value.strip()
    return value.decode("ascii") if _TEXT.fullmatch(value) else None


def _lane(value: bytes) -> Lane | None:
    return _LANES.get(value.strip().lower())


def _smg_class(value: bytes) -> Lane | None:
    return _SMG_CLASSES.get(value.strip().lower())


def _urgency(value: bytes) -> Lane | None:
    found = _URGENCY.search(value)
    return None if found is None else _URGENCIES.get(found[1])


def _rising(value: bytes) -> Lane | None:
    value = value.strip()
    return _sign(int(value)) if _INTEGER.fullmatch(value) else None


def _sign(urgency: int) -> Lane | None:
    return Lane.INTERACTIVE if urgency > 0 else Lane.BATCH if urgency < 0 else None


def _milliseconds(value: bytes) -> float | None:
    value = value.strip()
    number = float(value) if _NUMBER.fullmatch(value) else 0.0
    return number if 0 < number <= MAX_DEADLINE_MS else None


def _path(value: bytes) -> CachePath | None:
    return _PATHS.get(value.strip().lower())


def _flag(value: bytes) -> bool | None:
    return True if value.strip().lower() in (b"true", b"1") else None


def _history(value: bytes) -> bool | None:
    return True if value.strip().lower() == b"server" else None


HEADERS: tuple[tuple[bytes, str, Callable[[bytes], Any]], ...] = (
    (b"x-headrace-business", "business", _text),
    (b"x-business-type", "business", _text),
    (b"x-headrace-lane", "lane", _lane),
    (b"x-priority", "lane", _lane),
    (b"x-smg-priority", "lane", _smg_class),
    (b"x-dynamo-request-priority", "lane", _rising),
    (b"priority", "lane", _urgency),
    (b"x-headrace-session", "session", _text),
    (b"x-session-id", "session", _text),
    (b"x-smg-routing-key", "session", _text),
    (b"x-headrace-tenant", "tenant", _text),
    (b"x-headrace-deadline-ms", "deadline_ms", _milliseconds),
    (b"x-llm-d-slo-ttft-ms", "deadline_ms", _milliseconds),
    (b"x-headrace-path", "path", _path),
    (b"x-headrace-pool", "pool", _text),
    (b"x-headrace-backend", "backend", _text),
    (b"x-llm-d-inference-fairness-id", "fairness", _text),
    (b"x-headrace-relegate", "relegate", _flag),
    (b"x-headrace-history", "history", _history),
    (b"x-headrace-session-seq", "session_seq", _text),
)
"""Header, hint and reader; of two headers for one hint the upper one counts."""

FIELDS = ("service_tier", "priority")
"""Members of the body that speak of the lane, after all headers and in this order."""

_NAMES = frozenset(name for name, _, _ in HEADERS)
_NOTHING: Mapping[str, object] = {}


def hints(
    headers: Iterable[tuple[bytes, bytes]],
    fields: Mapping[str, object] = _NOTHING,
    priority_rises: bool = False,
) -> Hints:
    """Of a request: `headers` with lower-case names, the first of a name counts; `fields` the body's `FIELDS`, others are not looked at.

    `priority_rises`: the body's `priority` means more urgent where it is larger.
    """
    found = [pair for pair in headers if pair[0] in _NAMES]
    if not found and "service_tier" not in fields and "priority" not in fields:
        return NO_HINTS
    said: dict[str, Any] = {}
    if found:
        values = dict(reversed(found))
        for name, hint, read in HEADERS:
            if name in values and hint not in said:
                value = read(values[name])
                if value is not None:
                    said[hint] = value
    if "lane" not in said:
        said["lane"] = _lane_of_body(fields, priority_rises)
    return Hints(**said)


def _lane_of_body(fields: Mapping[str, object], priority_rises: bool) -> Lane | None:
    tier, priority = fields.get("service_tier"), fields.get("priority")
    if isinstance(tier, str) and tier in _SERVICE_TIERS:
        return _SERVICE_TIERS[tier]
    if isinstance(priority, int) and not isinstance(priority, bool):
        return _sign(priority if priority_rises else -priority)
    return None
