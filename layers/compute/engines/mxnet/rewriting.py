"""x."""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import mxnet as mx

from layers.compute.bits import cpu_flags

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


LIMIT = "DNNL_MAX_CPU_ISA"

# A convolution's kernels work on so many channels at once, one block, with these flags of the CPU.
# The best come first. With SSE4.1, two measurements of LeNet-5 disagreed on whether blocks of 8
# save time, so that models stay as they are written.
BLOCKS = ((16, "avx512f"), (8, "avx2"), (8, "avx"))
NO_BLOCKS = 1

# What a limit leaves; a value that is not here is no limit.
_LEFT = {
    "SSE41": frozenset[str](),
    "AVX": frozenset({"avx"}),
    "AVX2": frozenset({"avx", "avx2"}),
    "AVX2_VNNI": frozenset({"avx", "avx2"}),
}


def channels_in_a_block(flags: Collection[str], limit: str | None) -> int:
    """Return how many channels oneDNN's fast convolutions compute at once; 1 if there are none.

    Args:
        flags: what the CPU can do, as Linux names it.
        limit: the value of `DNNL_MAX_CPU_ISA`, or None.
    """
    every = {flag for _, flag in BLOCKS}
    usable = every.intersection(flags) & _LEFT.get(limit or "", every)
    return next((channels for channels, flag in BLOCKS if flag in usable), NO_BLOCKS)


@lru_cache(maxsize=1)
def block() -> int:
    """Return how many channels a block has on this CPU, under this process's limit.

    It is found once, because oneDNN reads its limit once, too.
    """
    return channels_in_a_block(cpu_flags(), os.environ.get(LIMIT))


def shorten(output: Any) -> Any:
    """Return a symbol with the same arguments and the same result, with less to compute."""
    graph = graph_of(output)
    nodes, heads = graph["nodes"], {head[0] for head in graph["heads"]}
    readers = readers_of(nodes)
    for index, node in enumerate(nodes):
        source = node["inputs"][0][0] if node["inputs"] else 0
        before = nodes[source]
        if _is_max_pooling(node) and _is_relu(before):
            if readers[source] == [index] and source not in heads:
                nodes[source] = {**node, "inputs": before["inputs"]}
                nodes[index] = {**before, "inputs": node["inputs"]}
        elif before["op"] == "Flatten" and _flattens_its_input(node):
            node["inputs"][0] = before["inputs"][0]
    return symbol_of(graph)


def _is_max_pooling(node: Node) -> bool:
    return bool(node["op"] == "Pooling" and node["attrs"].get("pool_type", "max") == "max")


def _is_relu(node: Node) -> bool:
    return bool(node["op"] == "Activation" and node["attrs"]["act_type"] == "relu")


def _flattens_its_input(node: Node) -> bool:
    return bool(
        node["op"] == "FullyConnected" and node["attrs"].get("flatten", "True") in ("True", "1")
    )


# At most so many times the channels: more would cost more than they save.
MOST_GROWTH = 3
# oneDNN has some fast kernel for every multiple of this.
LEAST_BLOCK = 8
# What may stand between two convolutions: operators that compute each channel on its own.
CHANNELWISE = ("Activation", "Pooling")


def widen(output: Any, shapes: dict[str, Shape], channels: int | None = None) -> Any:
    """Return a symbol with the same arguments, in which narrow convolutions are widened.

    Args:
        output: the model.
        shapes: the shapes of its arguments, by name.
        channels: the channels of a block; None: those of this CPU.
    """
    graph = graph_of(output)
    further, cut = _further_channels(graph, channels or block())
    if not further and not cut:
        return output
    rewriting = Rewriting(graph)
    for index, node in enumerate(graph["nodes"]):
        before, after = _narrow_input(graph, index, further), further.get(index, 0)
        if index in cut:
            _widen_and_cut(rewriting, node, before, cut[index], shapes)
        elif node["op"] == "Convolution" and (before or after):
            rewriting.replace(_widened(rewriting, node, before, after, shapes))
        else:
            rewriting.keep(node)
    return rewriting.symbol()


def _further_channels(graph: dict[str, Any], block: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return how many channels to add to a node's output, for the nodes that get more.

    The second are convolutions whose further channels are cut off at once.
    """
    nodes = graph["nodes"]
    heads = {head[0] for head in graph["heads"]}
    readers = readers_of(nodes)
    further: dict[int, int] = {}
    cut: dict[int, int] = {}

    def has_blocks(index: int) -> bool:
        node = nodes[index]
        filters = int(node["attrs"]["num_filter"]) if is_simple_convolution(nodes, node) else 1
        return (filters + further.get(index, 0) + cut.get(index, 0)) % block == 0

    def way_to_convolutions(index: int) -> list[int] | None:
        """Return the nodes from here to the next convolutions, or None if others read them.

        A next convolution whose own output does not come in blocks would gain nothing: then None.
        """
        if index in heads:
            return None
        way = [index]
        for reader in readers.get(index, []):
            node = nodes[reader]
            if has_blocks(reader) and node["inputs"][0][0] == index:
                continue
            onward = way_to_convolutions(reader) if node["op"] in CHANNELWISE else None
            if onward is None:
                return None
            way += onward
        return way

    for index, node in reversed(list(enumerate(nodes))):
        if not is_simple_convolution(nodes, node):
            continue
        filters = int(node["attrs"]["num_filter"])
        extra = -filters % block
        if extra and filters + extra <= MOST_GROWTH * filters:
            way = way_to_convolutions(index)
            if way is None and filters > block and filters % LEAST_BLOCK:
                cut[index] = extra
            for passed in way or []:
                further[passed] = extra
    return further, cut


def _narrow_input(graph: dict[str, Any], index: int, further: dict[int, int]) -> int:
    """Return how many channels are added to the input of a convolution."""
    node = graph["nodes"][index]
    return further.get(node["inputs"][0][0], 0) if node["op"] == "Convolution" else 0


def _widen_and_cut(
    rewriting: Rewriting, node: Node, before: int, after: int, shapes: dict[str, Shape]
) -> None:
    """Add a widened convolution, and an operator that leaves its own channels only."""
    wide = _widened(rewriting, node, before, after, shapes)
    output = rewriting.operator(wide["op"], f"{node['name']}_wide", wide["inputs"], wide["attrs"])
    attrs = {"axis": "1", "begin": "0", "end": node["attrs"]["num_filter"]}
    rewriting.replace(
        {"op": "slice_axis", "name": node["name"], "attrs": attrs, "inputs": [output]}
    )


def _widened(
    rewriting: Rewriting, node: Node, before: int, after: int, shapes: dict[str, Shape]
) -> Node:
    """Return a convolution with `before` more input and `after` more output channels."""
    data, *parameters = rewriting.renumbered(node["inputs"])
    inputs = [data]
    for entry in parameters:
        name = rewriting.name(entry)
        shape, whole = shapes[name], f"{node['name']}_{name}"
        if len(shape) == 4 and before:
            entry = rewriting.append_zeros(entry, shape, before, 1, whole)
            shape = (shape[0], shape[1] + before, *shape[2:])
        if after:
            entry = rewriting.append_zeros(entry, shape, after, 0, whole)
        inputs.append(entry)
    attrs = {**node["attrs"], "num_filter": str(int(node["attrs"]["num_filter"]) + after)}
    return {**node, "attrs": attrs, "inputs": inputs}


PARTS = 3
# The blocks of the instruction sets whose kernel this is.
BLOCK = 8


def split_rows(output: Any, data: Shape, channels: int | None = None) -> Any:
    """Return a symbol with the same arguments, in which convolutions of grey images are split.

    Args:
        output: the model.
        data: the shape of its input "data".
        channels: the channels of a block; None: those of this CPU.
    """
    graph = graph_of(output)
    nodes = graph["nodes"]
    of_grey = len(data) == 4 and data[1] == 1 and (channels or block()) == BLOCK
    if not of_grey or not any(_can_be_split(nodes, node) for node in nodes):
        return output
    rewriting = Rewriting(graph)
    for node in nodes:
        if _can_be_split(nodes, node):
            _split(rewriting, node, data)
        else:
            rewriting.keep(node)
    return rewriting.symbol()


def _can_be_split(nodes: list[Node], node: Node) -> bool:
    attrs = node.get("attrs", {})
    return (
        is_convolution(node)
        and nodes[node["inputs"][0][0]]["name"] == "data"
        and int(attrs["num_filter"]) % BLOCK == 0
        and ast.literal_eval(attrs["kernel"])[0] > 1
        and set(ast.literal_eval(attrs.get("stride", "()"))) <= {1}
        and set(ast.literal_eval(attrs.get("dilate", "()"))) <= {1}
    )


def _split(rewriting: Rewriting, node: Node, data: Shape) -> None:
    attrs, name = node["attrs"], node["name"]
    rows, columns = ast.literal_eval(attrs["kernel"])
    above, beside = ast.literal_eval(attrs.get("pad", "()")) or (0, 0)
    filters = int(attrs["num_filter"])
    part = -(-rows // PARTS)
    missing = PARTS * part - rows
    image, weight, *bias = rewriting.renumbered(node["inputs"])
    if above or missing:
        width = (0, 0, 0, 0, above, above + missing, 0, 0)
        image = rewriting.operator(
            "Pad", f"{name}_padded", [image], {"mode": "constant", "pad_width": width}
        )
    seen = data[2] + 2 * above - rows + part  # rows that a part meets
    views = [
        rewriting.operator(
            "slice_axis", f"{name}_from{start}", [image],
            {"axis": 2, "begin": start, "end": start + seen},
        )
        for start in range(0, PARTS * part, part)
    ]  # fmt: skip
    split = rewriting.operator("Concat", f"{name}_views", views, {"dim": 1, "num_args": PARTS})
    if missing:
        shape = (filters, 1, rows, columns)
        weight = rewriting.append_zeros(weight, shape, missing, 2, f"{name}_rows")
    shape = (filters, PARTS, part, columns)
    weight = rewriting.operator("Reshape", f"{name}_parts", [weight], {"shape": shape})
    narrow = {**attrs, "kernel": str((part, columns)), "pad": str((0, beside))}
    rewriting.replace({**node, "attrs": narrow, "inputs": [split, weight, *bias]})


def join_flat(output: Any, example: Shape) -> Any:
    """Return a symbol with the same arguments, in which joins have three dimensions.

    Args:
        output: the model.
        example: the shape of one input.
    """
    graph = graph_of(output)
    if not any(_joins_second_axis(node) for node in graph["nodes"]):
        return output
    inner = output.get_internals()
    _, shapes, _ = inner.infer_shape(data=(1, *example))
    known = dict(zip(inner.list_outputs(), shapes, strict=True))
    rewriting = Rewriting(graph)
    for node in graph["nodes"]:
        shape = known.get(f"{node['name']}_output", ())
        if _joins_second_axis(node) and len(shape) in (2, 4):
            _flatten(rewriting, node, shape)
        else:
            rewriting.keep(node)
    return rewriting.symbol()


def _joins_second_axis(node: Node) -> bool:
    return bool(node["op"] == "Concat" and node["attrs"].get("dim", "1") == "1")


def _flatten(rewriting: Rewriting, node: Node, shape: Shape) -> None:
    name, inputs = node["name"], rewriting.renumbered(node["inputs"])
    # 0 takes over the length of an axis, -1 is what is left.
    flat = {"shape": (0, 0, -1)}
    parts = [
        rewriting.operator("Reshape", f"{name}_flat{number}", [entry], flat)
        for number, entry in enumerate(inputs)
    ]
    joined = rewriting.operator(
        "Concat", f"{name}_joined", parts, {"dim": 1, "num_args": len(parts)}
    )
    attrs = {"shape": str((0, 0, *shape[2:]) if shape[2:] else (0, -1))}
    rewriting.replace({"op": "Reshape", "name": name, "attrs": attrs, "inputs": [joined]})
