"""Values made for a JSON schema fit it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.emulator.schema_instance import instance


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object"}, {}),
        ({"properties": {"a": {"type": "null"}, "b": {}}, "required": ["a"]}, {"a": None}),
        ({"type": "object", "required": ["undeclared"]}, {"undeclared": "water"}),
        ({"type": ["string", "null"]}, "water"),
        ({"type": "string", "minLength": 8}, "waterrrr"),
        ({"type": "string", "maxLength": 2}, "wa"),
        ({"enum": [3, 4]}, 3),
        ({"const": {"x": 1}}, {"x": 1}),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "integer", "exclusiveMinimum": 7}, 8),
        ({"type": "integer", "maximum": -4}, -5),
        ({"type": "number", "minimum": 2}, 2.0),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        ({"$ref": "#/$defs/a/0", "$defs": {"a": []}}, None),
        (True, None),
    ],
)
def test_a_small_fitting_value_is_found(schema: Any, expected: object) -> None:
    assert instance(schema) == expected


def test_a_schema_that_contains_itself_ends() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    depth = 0
    value = instance(schema)
    while value is not None:
        value = value["next"]
        depth += 1
    assert 0 < depth < 10
