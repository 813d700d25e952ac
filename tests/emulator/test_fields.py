"""A request's fields are read as vLLM reads them: text for a number or a truth is taken, null is absent, anything else is a 400 that names the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gateway.emulator import fields
from gateway.emulator.errors import RefusedError

Read = Callable[[fields.Body, str], object]

TAKEN: list[tuple[Read, Any, object]] = [
    (fields.integer, 5, 5),
    (fields.integer, "5", 5),
    (fields.integer, 5.0, 5),
    (fields.integer, None, None),
    (fields.number, 1, 1.0),
    (fields.number, "0.5", 0.5),
    (fields.number, None, None),
    (fields.boolean, True, True),
    (fields.boolean, "yes", True),
    (fields.boolean, 1, True),
    (fields.boolean, "off", False),
    (fields.boolean, 0, False),
    (fields.boolean, None, False),
    (fields.text, "a", "a"),
    (fields.text, None, ""),
    (fields.record, {"a": 1}, {"a": 1}),
    (fields.record, None, {}),
    (fields.items, [1], [1]),
    (fields.items, None, []),
    (fields.strings, "a", ["a"]),
    (fields.strings, ["a", "b"], ["a", "b"]),
    (fields.strings, None, []),
]
REFUSED: list[tuple[Read, Any]] = [
    (fields.integer, "five"),
    (fields.integer, 5.5),
    (fields.integer, [5]),
    (fields.integer, True),
    (fields.number, "half"),
    (fields.number, {}),
    (fields.boolean, "perhaps"),
    (fields.boolean, 2),
    (fields.text, 5),
    (fields.record, [1, 2]),
    (fields.items, {"a": 1}),
    (fields.strings, 5),
    (fields.strings, ["a", 5]),
]


def named(case: object) -> str:
    return getattr(case, "__name__", repr(case))


@pytest.mark.parametrize(("read", "given", "taken"), TAKEN, ids=named)
def test_a_value_of_the_kind_or_one_that_stands_for_it_is_taken(
    read: Read, given: Any, taken: object
) -> None:
    found = read({"x": given}, "x")
    assert found == taken and type(found) is type(taken)
    if given is None:
        assert read({}, "x") == taken


@pytest.mark.parametrize(("read", "given"), REFUSED, ids=named)
def test_a_value_of_another_kind_is_refused_with_the_field_s_name(read: Read, given: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        read({"x": given}, "x")
    assert caught.value.status == 400
    assert orjson.loads(caught.value.body)["error"]["param"] == "body.x"


@pytest.mark.parametrize(("body", "kind"), [({}, b"'missing'"), ({"x": None}, b"'list_type'")])
def test_a_list_that_is_required_may_be_neither_absent_nor_null(body: fields.Body, kind: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        fields.items(body, "x", required=True)
    assert kind in caught.value.body


@pytest.mark.parametrize("raw", [b"", b"null", b"[1]", b"5", b"{", b'{"a":"\xff"}'])
def test_a_body_that_is_no_json_object_is_a_400(raw: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        fields.decode(raw)
    assert caught.value.status == 400
