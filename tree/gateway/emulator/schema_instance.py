"""A smallest value that fits a JSON schema, for tool arguments and structured answers.

Objects get their required properties only, arrays their least number of items. `$ref` is followed inside the
document, eight levels deep at most. Not modelled: `pattern`, `format`, `not`, conditions, and `uniqueItems`
above one item.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 8


def instance(schema: object, root: object = None, depth: int = 0) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    root = schema if root is None else root
    if "$ref" in schema:
        return instance(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(keyword), list) and options:
            return instance(options[0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {
                name: instance(properties.get(name, {"type": "string"}), root, depth + 1)
                for name in schema.get("required", ())
            }
        case "array":
            item = instance(schema.get("items", {"type": "string"}), root, depth + 1)
            return [item] * int(schema.get("minItems", 0))
        case "string":
            return "water".ljust(int(schema.get("minLength", 0)), "r")[
                : int(schema.get("maxLength", 1 << 20))
            ]
        case "integer":
            return _least(schema)
        case "number":
            return float(_least(schema))
        case "boolean":
            return True
        case _:
            return None


def _least(schema: dict[str, Any]) -> int:
    if "minimum" in schema:
        return -int(-schema["minimum"] // 1)
    if "exclusiveMinimum" in schema:
        return int(schema["exclusiveMinimum"] // 1) + 1
    at_most = schema.get("maximum", schema.get("exclusiveMaximum", 2))
    return int(min(1, at_most - 1))


def _resolve(reference: object, root: object) -> object:
    found = root
    if isinstance(reference, str) and reference.startswith("#/"):
        for part in reference[2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        return found
    return None
