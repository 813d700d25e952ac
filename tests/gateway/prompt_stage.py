"""Size and prefix of a body as the gateway finds them: read once, counted, then fingerprinted."""

from __future__ import annotations

from typing import Any

from gateway.message_texts import message_texts
from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix
from gateway.text_size import text_size
from policies.lengths import TextSize
from policies.prefix_chain import Prefix


def prefix_found(kind: Kind, fields: dict[str, Any], model: str) -> Prefix | None:
    texts = message_texts(kind, fields)
    return prompt_prefix(kind, fields, model, text_size(kind, fields, texts), texts)


def size_found(kind: Kind, fields: dict[str, Any]) -> TextSize:
    return text_size(kind, fields, message_texts(kind, fields))
