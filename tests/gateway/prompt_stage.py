"""The prefix of a body as the gateway finds it: counted first, then fingerprinted."""

from __future__ import annotations

from typing import Any

from gateway.paths import Kind
from gateway.prompt_prefix import prompt_prefix
from gateway.text_size import text_size
from policies.prefix_chain import Prefix


def prefix_found(kind: Kind, fields: dict[str, Any], model: str) -> Prefix | None:
    return prompt_prefix(kind, fields, model, text_size(kind, fields))
