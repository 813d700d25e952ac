"""The three layers stay what they are: `policies/` pure, `routing/` synchronous, `gateway/` waits; imports go one way only."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PURE_MODULES = {
    "__future__", "array", "bisect", "collections", "dataclasses", "enum", "fractions", "functools", "heapq", "itertools", "math",
    "operator", "re", "typing",
}  # fmt: skip
"""All that the two lower layers may import of the standard library: nothing in it knows a clock, a chance or a file."""
HASHES = {"xxhash"}
"""A package of pure functions; the standard library's `hashlib` would be the other, at ten times the cost."""
ALLOWED = {
    "policies": PURE_MODULES | HASHES | {"policies"},
    "routing": PURE_MODULES | {"policies", "routing"},
}
IMPURE_CALLS = {"print", "open", "input", "exec", "eval", "compile", "__import__", "breakpoint", "id", "hash"}
"""`id` and `hash` differ from run to run."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
MAX_LINES = 400
MEDIAN_LINES = 150

ADAPTERS = {
    "Router", "Upstream", "Turnstile", "Telemetry", "Proxy", "Realtime", "Probes", "ModelCatalogue", "RequestLog",
}  # fmt: skip
"""What the gateway is composed of; only the composition root makes one."""


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of the modules that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def faults(source: str, allowed: set[str]) -> list[str]:
    """What a module of a lower layer must not do, found in `source`."""
    tree = ast.parse(source)
    found = [f"imports {name}" for name in imported(tree) if name.partition(".")[0] not in allowed]
    for node in ast.walk(tree):
        if isinstance(
            node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
        ):  # a generator expression's too
            found.append(f"waits in line {node.lineno}")
        elif isinstance(node, ast.comprehension) and node.is_async:
            found.append("waits in a comprehension")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"calls {node.func.id} in line {node.lineno}")
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.append(f"shares a variable in line {node.lineno}")
    return found


def mutable_globals(source: str) -> list[str]:
    """Names of containers that a policy could keep something in: a table has to be annotated and is written in capitals."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(
            node.value, ast.List | ast.Set | ast.Dict | ast.ListComp
        ):
            found += [
                name.id for name in node.targets if isinstance(name, ast.Name) and not name.id.isupper()
            ]
    return found


@pytest.mark.parametrize("package", ["policies", "routing"])
def test_a_lower_layer_neither_waits_nor_reads_clocks_nor_draws_chances(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): problems
        for path in sources(package)
        if (problems := faults(path.read_text(encoding="utf-8"), ALLOWED[package]))
    }
    assert sources(package) and found == {}


def test_policies_keep_nothing() -> None:
    assert [name for path in sources("policies") for name in mutable_globals(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import asyncio",
        "def f():\n    from random import random",
        "import os.path",
        "from socket import socket",
        "import logging, math",
        "from uuid import uuid4",
        "from datetime import datetime",
        "import threading",
        "from gateway import errors",
        "from . import terms",
        "async def f(): pass",
        "async def f():\n    return [x async for x in y]",
        "print(1)",
        "def f():\n    global x",
        "open('x')",
    ],
)
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert faults(source, ALLOWED["routing"])


def test_the_check_takes_what_is_allowed_and_policies_may_not_look_up() -> None:
    source = "from dataclasses import dataclass\nfrom policies.terms import Tag\nx = [y for y in z]"
    assert faults(source, ALLOWED["policies"]) == []
    assert faults("from routing.fleet import Fleet", ALLOWED["policies"]) == ["imports routing.fleet"]
    assert mutable_globals("seen = {}\nTABLE = {1: 2}") == ["seen"]


def test_nothing_that_is_shipped_imports_the_tests() -> None:
    for package in ("policies", "routing", "gateway"):
        for path in sources(package):
            tree = parsed(path)
            assert not [name for name in imported(tree) if name.partition(".")[0] == "tests"], path


def calls(tree: ast.AST) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_only_the_composition_root_makes_the_parts_of_the_gateway() -> None:
    makers = {
        part: {
            path.relative_to(ROOT).as_posix() for path in sources("gateway") if part in calls(parsed(path))
        }
        for part in ADAPTERS
    }
    assert {name for paths in makers.values() for name in paths} == {"gateway/app.py"}
    assert makers["Router"] and makers["Proxy"] and makers["Upstream"]


def test_only_the_outermost_modules_know_the_composition_root() -> None:
    roots = {"gateway.app", "gateway.server", "gateway.__main__"}
    for path in sources("gateway"):
        names = set(imported(parsed(path)))
        if path.name not in ("__main__.py", "server.py") and path.parent.name != "demo":
            assert not names & roots, path


def test_the_emulated_engine_shares_no_code_with_the_gateway_it_tests() -> None:
    for path in sources("gateway/emulator"):
        names = set(imported(parsed(path)))
        own = {name for name in names if name.partition(".")[0] in ("gateway", "routing", "policies")}
        assert all(name.startswith("gateway.emulator") for name in own), (path, own)


def import_graph() -> dict[str, set[str]]:
    """The modules of the three packages and which of them each imports when it is loaded."""
    modules: dict[str, Path] = {}
    for package in ("policies", "routing", "gateway"):
        for path in sources(package):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = path
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        graph[name] = set()
        for node in parsed(path).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= (members & modules.keys()) or ({node.module} & modules.keys())
    return graph


def test_no_module_needs_itself() -> None:
    graph = import_graph()
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way, name))
        if name not in done:
            for needed in graph[name]:
                visit(needed, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    assert len(done) > 30


def test_modules_are_short_and_are_called_for_what_they_decide() -> None:
    paths = [path for package in ("policies", "routing", "gateway") for path in sources(package)]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {path.name: count for path, count in lines.items() if count > MAX_LINES} == {}
    assert statistics.median(count for count in lines.values() if count > 5) <= MEDIAN_LINES
    names = {part for path in paths for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & VAGUE_NAMES


def test_every_module_says_what_it_is_for() -> None:
    silent = []
    for package in ("policies", "routing", "gateway"):
        for path in sources(package):
            tree = parsed(path)
            if tree.body and not ast.get_docstring(tree):
                silent.append(str(path.relative_to(ROOT)))
    assert silent == []
