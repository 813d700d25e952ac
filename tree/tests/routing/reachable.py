"""What an object keeps alive, whatever its attributes are called: for tests of bounds and of forgetting."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType


def kept_by(root: object) -> list[object]:
    """Every object reachable from `root` but classes, functions and modules."""
    found: dict[int, object] = {id(root): root}
    todo = [root]
    while todo:
        for item in gc.get_referents(todo.pop()):
            shared = isinstance(item, type | FunctionType | BuiltinFunctionType | ModuleType)
            if not shared and id(item) not in found:
                found[id(item)] = item
                todo.append(item)
    return list(found.values())


def entries(root: object) -> int:
    """How many things all the containers below `root` hold together."""
    containers = (item for item in kept_by(root) if isinstance(item, dict | list | set | frozenset | tuple))
    return sum(len(item) for item in containers)
