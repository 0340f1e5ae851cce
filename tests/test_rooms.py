"""Imports between packages: they all go one way, and there is no import cycle.

A room is a folder of modules. A package's `__init__` that only hands names on is a door, and so is
`__main__`: what a door imports is no arrow of its room, and nobody inside goes through it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import imported

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("fedmx", "layers")
# What each layer may import from outside, besides Python's own library.
OUTSIDE = {
    "layers/network": {"cryptography", "msgpack", "numpy"},
    "layers/logic": {"annotated_types", "cryptography", "numpy", "sklearn"},
    "layers/compute": {
        "PIL",
        "annotated_types",
        "datasets",
        "gluoncv",
        "mxnet",
        "numpy",
        "onnx",
        "pandas",
        "scipy",
        "sklearn",
        "threadpoolctl",
        "torch",
    },
}
# The libraries of each engine, which only its room may import.
ENGINES = {"mxnet": {"mxnet", "gluoncv"}, "torch": {"torch"}}


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the house by its dotted name; a package is its `__init__`."""
    found = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def room(module: str) -> str:
    return str(modules()[module].parent.relative_to(ROOT))


@cache
def is_door(module: str) -> bool:
    """Whether a module only hands names on."""
    path = modules()[module]
    if path.name == "__main__.py":
        return True
    if path.name != "__init__.py":
        return False
    defined = [
        node.name
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    return all(name.startswith("__") for name in defined)


def arrows() -> Iterator[tuple[str, str]]:
    """Every import of one module by another, type-only imports included."""
    for module, path in modules().items():
        names = {name for name, _ in imported(path)} & set(modules())
        # `from package import module` names both; the module is what is meant.
        inner = {name for name in names if any(other.startswith(f"{name}.") for other in names)}
        for name in sorted(names - {one for one in inner if is_door(one)}):
            if name != module:
                yield module, name


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected groups of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_every_room_says_what_lives_there_and_what_may_not_come_in() -> None:
    silent = []
    for module, path in modules().items():
        if path.name == "__init__.py" and module not in PARTS:
            docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
            if len(docstring.split("\n\n")) < 2:
                silent.append(module)
    assert silent == []


def test_no_file_imports_itself_through_others() -> None:
    graph = defaultdict(set)
    for module, other in arrows():
        graph[module].add(other)
    assert circles(graph) == []


def test_all_arrows_between_rooms_go_one_way() -> None:
    graph = defaultdict(set)
    for module, other in arrows():
        if not is_door(module) and room(module) != room(other):
            graph[room(module)].add(room(other))
    assert graph
    assert circles(graph) == []


def test_nobody_leaves_a_room_through_the_door_of_the_house_he_is_in() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, other in arrows()
        if is_door(other) and not is_door(module) and module.startswith(f"{other}.")
    ]
    assert wrong == []


def test_the_reader_of_arrows_finds_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}}) == []


@pytest.mark.parametrize("layer", OUTSIDE)
def test_a_layer_imports_from_outside_only_what_it_may(layer: str) -> None:
    import sys

    wrong = set()
    for module, path in modules().items():
        if not room(module).startswith(layer):
            continue
        for name, line in imported(path):
            top = name.partition(".")[0]
            if top in {*sys.stdlib_module_names, "layers", *OUTSIDE[layer]}:
                continue
            wrong.add(f"{path.relative_to(ROOT)}:{line} imports {top}")
    assert wrong == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_library_of_an_engine_lives_in_one_room(engine: str) -> None:
    wrong = [
        module
        for module, path in modules().items()
        if any(name.partition(".")[0] in ENGINES[engine] for name, _ in imported(path))
        and not room(module).startswith(f"layers/compute/engines/{engine}")
    ]
    assert wrong == []
