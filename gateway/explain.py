"""`headrace explain`: what the gateway would decide about a request, without sending it.

In: a configuration, a file with the request's JSON body (`-` is standard input), its path and headers. Out: the tag and the decision as JSON. Exit
code 0, or 2 where configuration or body cannot be read.
`business_by` is what told the business type, `classifier` what the trained classifier makes of the text, whether or not it was asked or sure enough.
Limit: nothing has been learnt, nothing runs and every backend counts as there: lengths are those of a first request, and a slot is free.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from gateway.body import view_json
from gateway.configuration import ConfigurationError, load
from gateway.errors import Refused
from gateway.paths import route_of
from gateway.settings import Settings
from gateway.tagging import Tagging
from policies.refusals import STATUS_OF
from policies.terms import Refusal
from routing.decision import Lease
from routing.router import Router

Headers = Sequence[tuple[bytes, bytes]]


def explain_command(
    config: str,
    file: str,
    path: str,
    lines: Sequence[str],
    environment: Mapping[str, str],
    idle_router: Callable[[Settings], Router],
) -> int:
    """`lines` are headers as `NAME: VALUE`; `idle_router` makes the core of a gateway that has just started."""
    try:
        settings = load(config, environment)
        body = sys.stdin.buffer.read() if file == "-" else _read(file)
        found = explained(settings, idle_router(settings), body, path, [_header(line) for line in lines])
    except (ConfigurationError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() + "\n")
    return 0


def explained(settings: Settings, router: Router, body: bytes, path: str, headers: Headers) -> dict[str, Any]:
    """What `headrace explain` prints."""
    route = route_of(path, path.encode(), "POST")
    if route is None:
        return _refused(Refusal.UNKNOWN_PATH, f"Nothing is served at {path!r}")
    tagging = Tagging(settings)
    try:
        client = tagging.client(headers)
        view = view_json(body)
    except Refused as refused:
        return _refused(refused.reason, refused.message)
    model = settings.aliases.get(view.model, view.model)
    intent = tagging.intent(client, route.kind, path, view.model, view.fields)
    source, said = tagging.told_by(client, path, view.model, view.fields)
    decision = router.arrive(model, 0.0, intent)
    if isinstance(decision, Refusal):
        return {"model": model, **_refused(decision, "")}
    tag = decision.tag
    target = None if tag.target_seconds == float("inf") else tag.target_seconds * 1000
    return {
        "model": model,
        "business": tag.business,
        "business_by": source,
        "classifier": said and {"business": said.name, "confidence": round(said.confidence, 3)},
        "tenant": tag.tenant,
        "lane": tag.lane,
        "length": tag.length,
        "path": tag.path,
        "prefix_chars": list(tag.key.prefix.depths) if tag.key is not None else [],
        "prompt_tokens": round(tag.prompt_tokens),
        "output_tokens": round(tag.output_tokens),
        "cost": round(tag.cost),
        "target_ms": target,
        "pools": list(tag.pools),
        "decision": "sent at once" if isinstance(decision, Lease) else "waits",
        "backend": decision.backend.id if isinstance(decision, Lease) else None,
    }


def _refused(reason: Refusal, message: str) -> dict[str, Any]:
    return {"decision": "refused", "status": STATUS_OF[reason], "reason": reason, "message": message}


def _read(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read()


def _header(line: str) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"{line!r} is not a header; write it as NAME: VALUE")
    return name.strip().lower().encode("latin-1"), value.strip().encode("latin-1")
