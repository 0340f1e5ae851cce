"""A graph's nodes, written anew one after the other; the arguments stay the same."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

import mxnet as mx

Shape = tuple[int, ...]
Node = dict[str, Any]
# The number of a node, which of its outputs, and a version.
Entry = list[int]


def graph_of(symbol: Any) -> dict[str, Any]:
    """Return a symbol's graph as MXNet writes it in JSON."""
    graph: dict[str, Any] = json.loads(symbol.tojson())
    return graph


def readers_of(nodes: list[Node]) -> dict[int, list[int]]:
    """Return, for each node that is read, the numbers of the nodes that read it."""
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for source, *_ in node["inputs"]:
            readers.setdefault(source, []).append(index)
    return readers


def is_convolution(node: Node) -> bool:
    """Return whether a node is a 2-D convolution of images, without groups."""
    attrs = node.get("attrs", {})
    return (
        node["op"] == "Convolution"
        and attrs.get("num_group", "1") == "1"
        and len(ast.literal_eval(attrs["kernel"])) == 2
        and attrs.get("layout", "None") in ("None", "NCHW")
    )


def is_simple_convolution(nodes: list[Node], node: Node) -> bool:
    """Return whether a node is such a convolution, and its weights and bias are arguments."""
    return is_convolution(node) and all(
        nodes[source]["op"] == "null" for source, *_ in node["inputs"][1:]
    )


class Rewriting:
    """The new graph's nodes, in order; callers name a node's inputs by their old numbers."""

    def __init__(self, graph: dict[str, Any]):
        self._old = graph
        self._nodes: list[Node] = []
        self._number: list[int] = []

    def keep(self, node: Node) -> None:
        """Add an old node as it is; every old node is kept or replaced, in order."""
        self.replace({**node, "inputs": self.renumbered(node["inputs"])})

    def replace(self, node: Node) -> None:
        """Add a node instead of the next old one; its inputs are new ones."""
        self._number.append(self._add(node))

    def renumbered(self, entries: list[Entry]) -> list[Entry]:
        """Return what old entries are in the new graph."""
        return [[self._number[source], *rest] for source, *rest in entries]

    def name(self, entry: Entry) -> str:
        """Return the name of a new entry's node."""
        return str(self._nodes[entry[0]]["name"])

    def operator(
        self, operator: str, name: str, inputs: list[Entry], attrs: Mapping[str, object]
    ) -> Entry:
        """Add an operator of new inputs; return its output."""
        texts = {key: str(value) for key, value in attrs.items()}
        node = {"op": operator, "name": name, "attrs": texts, "inputs": inputs}
        return [self._add(node), 0, 0]

    def append_zeros(self, entry: Entry, shape: Shape, count: int, axis: int, name: str) -> Entry:
        """Add zeros after the last elements of an axis of an entry with this shape.

        They are joined in three dimensions, which MXNet does itself. For four it calls oneDNN, and
        the gradient of that leaves 0.9 kB for each input in memory for ever.
        """
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        whole = (*shape[:axis], shape[axis] + count, *shape[axis + 1 :])
        missing = {"ctx": "", "dtype": "float32", "shape": (before, count, after)}
        zeros = self.operator("_zeros", f"{name}_zeros{axis}", [], missing)
        flat = {"shape": (before, shape[axis], after)}
        entry = self.operator("Reshape", f"{name}_flat{axis}", [entry], flat)
        both = {"dim": 1, "num_args": 2}
        entry = self.operator("Concat", f"{name}_joined{axis}", [entry, zeros], both)
        return self.operator("Reshape", f"{name}_whole{axis}", [entry], {"shape": whole})

    def symbol(self) -> Any:
        """Return the new graph."""
        return symbol_of(
            {
                "nodes": self._nodes,
                "heads": self.renumbered(self._old["heads"]),
                "attrs": self._old["attrs"],
            }
        )

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


def symbol_of(graph: dict[str, Any]) -> Any:
    """Return the symbol of a graph in JSON."""
    arguments = [i for i, node in enumerate(graph["nodes"]) if node["op"] == "null"]
    return mx.sym.load_json(json.dumps({**graph, "arg_nodes": arguments}))
