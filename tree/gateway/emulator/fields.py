"""Typed access to the fields of a request body, with vLLM's error for each wrong type.

Like the real engine it takes `"5"` for 5 and `"true"` for true, and null for absent.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from gateway.emulator.errors import malformed, not_json, not_utf8

Body = dict[str, Any]


def decode(raw: bytes) -> Body:
    if not raw:
        raise malformed("missing", "body", "Field required", "None")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise not_utf8() from None
        raise not_json(error.pos, "Expecting value") from None
    if not isinstance(body, dict):
        if body is None:
            raise malformed("missing", "body", "Field required", "None")
        message = "Input should be a valid dictionary or object to extract fields from"
        raise malformed("model_attributes_type", "body", message, _shown(body))
    return cast(Body, body)


def integer(body: Body, name: str) -> int | None:
    value = body.get(name)
    if value is None or type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            message = "Input should be a valid integer, unable to parse string as an integer"
            raise malformed("int_parsing", f"body.{name}", message, value) from None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise malformed("int_type", f"body.{name}", "Input should be a valid integer", _shown(value))


def number(body: Body, name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise malformed(
            "float_type", f"body.{name}", "Input should be a valid number", _shown(value)
        ) from None


def boolean(body: Body, name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if value in (1, "1", "true", "True", "yes", "on"):
        return True
    if value in (0, "0", "false", "False", "no", "off"):
        return False
    message = "Input should be a valid boolean, unable to interpret input"
    raise malformed("bool_parsing", f"body.{name}", message, _shown(value))


def text(body: Body, name: str) -> str:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise malformed("string_type", f"body.{name}", "Input should be a valid string", _shown(value))


def record(body: Body, name: str) -> Body:
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    raise malformed("dict_type", f"body.{name}", "Input should be a valid dictionary", _shown(value))


def items(body: Body, name: str, *, required: bool = False) -> list[Any]:
    value = body.get(name)
    if value is None:
        if required and name not in body:
            raise malformed("missing", f"body.{name}", "Field required", _shown(body))
        if not required:
            return []
    if isinstance(value, list):
        return value
    raise malformed("list_type", f"body.{name}", "Input should be a valid list", _shown(value))


def strings(body: Body, name: str) -> list[str]:
    """A string or a list of strings."""
    value = body.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise malformed("string_type", f"body.{name}", "Input should be a valid string", _shown(value))


def _shown(value: object) -> str:
    """How the real engine shows an input: collections by size only."""
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    return str(value)
