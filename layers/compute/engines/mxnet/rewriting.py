"""The training graph: a model's graph, rewritten to take less time and memory.

A rewritten graph is the same function of the same arguments, with the same gradient. The rewrites
follow the vector instructions that oneDNN uses on this CPU.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

from layers.compute.bits import cpu_flags, has_half_units

Shape = tuple[int, ...]
Node = dict[str, Any]
Entry = list[int]
"""The output of a node: the node's number, the output's number, and a version."""


class Padding(NamedTuple):
    """How a parameter enters a training graph: among zeros, and in another shape.

    Attributes:
        whole: the shape with the zeros; the parameter is at the start of each axis.
        shape: the shape in the graph, with as many elements.
    """

    whole: Shape
    shape: Shape


Paddings = dict[str, Padding]
"""The padded parameters of a training graph, by name."""


class Views(NamedTuple):
    """How grey images enter a training graph: in several channels, each from another row on.

    Attributes:
        shape: (channels, rows, columns).
        first: the image's row at which each channel begins; rows beyond the image are zeros.
    """

    shape: Shape
    first: tuple[int, ...]

    def places(self, images: np.ndarray, views: np.ndarray) -> Iterator[Place]:
        """Yield the places of `views` that are not zero, and the rows of `images` there."""
        for channel, first in enumerate(self.first):
            begin, end = max(first, 0), min(first + self.shape[1], images.shape[2])
            yield views[:, channel, begin - first : end - first], images[:, 0, begin:end]


Place = tuple[np.ndarray, np.ndarray]
"""A part of an array, and the values to copy there."""


def training_graph(
    output: Any, shapes: dict[str, Shape], example: Shape
) -> tuple[Any, Paddings, dict[str, Views]]:
    """Return the training graph of a model, the padding of its parameters, and its other inputs.

    An engine calls this once: MXNet never frees about 14 kB of each graph that it parses.

    Args:
        output: the model.
        shapes: the shapes of its arguments, by name.
        example: the shape of one input.
    """
    paddings: Paddings = {}
    views: dict[str, Views] = {}
    wide = join_flat(widen(shorten(output), shapes, paddings), example)
    return split_rows(wide, (1, *example), paddings, views), paddings, views


def shorten(output: Any) -> Any:
    """Return the same graph with less to compute; results keep their bits.

    ReLU moves behind max pooling, where it has a quarter of the values: the largest of some
    rectified values is the largest value, rectified, and so is its gradient. Behind a dense layer,
    MXNet's own ReLU replaces that of oneDNN, whose preparation takes longer than its work: a step
    of the 2NN takes 0.93 of the time. A `Flatten` before a dense layer is dropped, because a dense
    layer flattens its input itself.
    """
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
        elif _is_relu(node) and before["op"] == "FullyConnected":
            nodes[index] = {**node, "op": "relu", "attrs": {}}
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


MOST_GROWTH = 3  # the most times that channels are multiplied: more would cost more than it saves
LEAST_BLOCK = 8  # oneDNN has a fast kernel for every multiple of this
# The operators that may be between two convolutions: they compute each channel on its own.
CHANNELWISE = ("Activation", "Pooling")


def widen(
    output: Any,
    shapes: dict[str, Shape],
    paddings: Paddings,
    channels: int | None = None,
    read: int | None = None,
) -> Any:
    """Return the same graph, with narrow convolutions widened to whole blocks of channels.

    oneDNN has fast kernels for whole blocks only: LeNet-5's six channels cost more than a block of
    16. So a narrow convolution computes additional channels with zero weights and bias, and the
    next convolution has zero weights for them. They do not change the result, and their gradient is
    not computed; results are equal up to rounding. A step of LeNet-5 with batch 10 takes
    470 microseconds instead of 680 with AVX-512.

    Where another operator such as dropout reads the channels, a convolution with more channels than
    a block is widened too, and the additional channels are cut off at once. A step of the knapsack
    CNN with batch 50 takes 3.2 ms instead of 4.7 ms with AVX-512, and 5.5 ms instead of 8.5 ms with
    AVX2.

    A CPU that computes AVX-512 on 256-bit units takes twice as long for a block of 16 as for one of
    8. There the additional channels are cut off again in front of a convolution that needs only
    half of them: a step of LeNet-5 with batch 10 takes 0.92 of the time.

    Args:
        output: the model.
        shapes: the shapes of its arguments, by name.
        paddings: gets the padding of the parameters.
        channels: the channels of a block; None: those of this CPU.
        read: the channels of a block that a convolution reads; None: as on this CPU.
    """
    graph = graph_of(output)
    read = read or read_block()
    added, cut = _added_channels(graph, channels or block())
    if not added and not cut:
        return output
    rewriting = Rewriting(graph, paddings)
    for index, node in enumerate(graph["nodes"]):
        before, after = _added_input(graph, index, added), added.get(index, 0)
        if index in cut:
            _widen_and_cut(rewriting, node, before, cut[index], shapes, read)
        elif node["op"] == "Convolution" and (before or after):
            rewriting.replace(_widened(rewriting, node, before, after, shapes, read))
        else:
            rewriting.keep(node)
    return rewriting.symbol()


def _added_channels(graph: dict[str, Any], block: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the channels to add, by node; and those that are cut off at once, by convolution."""
    nodes = graph["nodes"]
    heads = {head[0] for head in graph["heads"]}
    readers = readers_of(nodes)
    added: dict[int, int] = {}
    cut: dict[int, int] = {}

    def has_blocks(index: int) -> bool:
        node = nodes[index]
        filters = int(node["attrs"]["num_filter"]) if is_simple_convolution(nodes, node) else 1
        return (filters + added.get(index, 0) + cut.get(index, 0)) % block == 0

    def path_to_convolutions(index: int) -> list[int] | None:
        """Return the nodes from here to the next convolutions, or None if others read them.

        None, too, if a next convolution's own output is not in whole blocks: it would gain nothing.
        """
        if index in heads:
            return None
        path = [index]
        for reader in readers.get(index, []):
            node = nodes[reader]
            if has_blocks(reader) and node["inputs"][0][0] == index:
                continue
            onward = path_to_convolutions(reader) if node["op"] in CHANNELWISE else None
            if onward is None:
                return None
            path += onward
        return path

    for index, node in reversed(list(enumerate(nodes))):
        if not is_simple_convolution(nodes, node):
            continue
        filters = int(node["attrs"]["num_filter"])
        extra = -filters % block
        if extra and filters + extra <= MOST_GROWTH * filters:
            path = path_to_convolutions(index)
            if path is None and filters > block and filters % LEAST_BLOCK:
                cut[index] = extra
            for passed in path or []:
                added[passed] = extra
    return added, cut


def _added_input(graph: dict[str, Any], index: int, added: dict[int, int]) -> int:
    """Return how many channels are added to a convolution's input."""
    node = graph["nodes"][index]
    return added.get(node["inputs"][0][0], 0) if node["op"] == "Convolution" else 0


def _widen_and_cut(
    rewriting: Rewriting, node: Node, before: int, after: int, shapes: dict[str, Shape], read: int
) -> None:
    """Add a widened convolution, and an operator that keeps only its original channels."""
    wide = _widened(rewriting, node, before, after, shapes, read)
    output = rewriting.operator(wide["op"], f"{node['name']}_wide", wide["inputs"], wide["attrs"])
    attrs = {"axis": "1", "begin": "0", "end": node["attrs"]["num_filter"]}
    rewriting.replace(
        {"op": "slice_axis", "name": node["name"], "attrs": attrs, "inputs": [output]}
    )


def _widened(
    rewriting: Rewriting, node: Node, before: int, after: int, shapes: dict[str, Shape], read: int
) -> Node:
    """Return a convolution with `before` more input and `after` more output channels.

    Of its input it reads whole blocks of `read` channels, as many as it needs.
    """
    data, *parameters = rewriting.renumbered(node["inputs"])
    channels = shapes[rewriting.name(parameters[0])][1]
    needed = -channels % read
    if needed < before:
        first = {"axis": 1, "begin": 0, "end": channels + needed}
        data = rewriting.operator("slice_axis", f"{node['name']}_read", [data], first)
        before = needed
    for entry in parameters:
        name = rewriting.name(entry)
        filters, *inside = shapes[name]
        if inside:
            inside[0] += before
        rewriting.paddings[name] = Padding(*2 * [(filters + after, *inside)])
    attrs = {**node["attrs"], "num_filter": str(int(node["attrs"]["num_filter"]) + after)}
    return {**node, "attrs": attrs, "inputs": [data, *parameters]}


PARTS = 3
SPLIT_BLOCK = 8  # the kernel exists with AVX2 and AVX


def split_rows(
    output: Any,
    data: Shape,
    paddings: Paddings,
    views: dict[str, Views],
    channels: int | None = None,
) -> Any:
    """Return the same graph, with the first convolution of grey images on three input channels.

    With AVX2, oneDNN 2.4 has a fast kernel for the gradient of a convolution's weights with three
    input channels, but not with one. So the rows of the convolution's kernel are split into three
    parts, one for each channel; each channel is the image, shifted to the part's first row. Those
    channels are an input of the graph, as copies before it take less time than operators in it: a
    step of LeNet-5 with batch 10 takes 0.95 of the time. The same products are summed in another
    order. This gradient of LeNet-5 takes 72 microseconds instead of 201, a third of its step.

    Args:
        output: the model.
        data: the shape of its input "data".
        paddings: gets the padding of the kernel.
        views: gets the inputs that the images make.
        channels: the channels of a block; None: those of this CPU.
    """
    graph = graph_of(output)
    nodes = graph["nodes"]
    grey = len(data) == 4 and data[1] == 1 and (channels or block()) == SPLIT_BLOCK
    if not grey or not any(_can_be_split(nodes, node) for node in nodes):
        return output
    rewriting = Rewriting(graph, paddings)
    for node in nodes:
        if _can_be_split(nodes, node):
            _split(rewriting, node, data, views)
        else:
            rewriting.keep(node)
    return rewriting.symbol()


def _can_be_split(nodes: list[Node], node: Node) -> bool:
    attrs = node.get("attrs", {})
    return (
        is_simple_convolution(nodes, node)
        and nodes[node["inputs"][0][0]]["name"] == "data"
        and int(attrs["num_filter"]) % SPLIT_BLOCK == 0
        and ast.literal_eval(attrs["kernel"])[0] > 1
        and set(ast.literal_eval(attrs.get("stride", "()"))) <= {1}
        and set(ast.literal_eval(attrs.get("dilate", "()"))) <= {1}
    )


def _split(rewriting: Rewriting, node: Node, data: Shape, views: dict[str, Views]) -> None:
    attrs, name = node["attrs"], node["name"]
    rows, columns = ast.literal_eval(attrs["kernel"])
    above, beside = ast.literal_eval(attrs.get("pad", "()")) or (0, 0)
    filters = int(attrs["num_filter"])
    part = -(-rows // PARTS)
    missing = PARTS * part - rows
    _, weight, *bias = rewriting.renumbered(node["inputs"])
    height = data[2] + 2 * above - rows + part  # the rows that a part is applied to
    split = rewriting.variable(f"{name}_views")
    first = tuple(range(-above, PARTS * part - above, part))
    views[rewriting.name(split)] = Views((PARTS, height, data[3]), first)
    whole, shape = (filters, 1, rows + missing, columns), (filters, PARTS, part, columns)
    rewriting.paddings[rewriting.name(weight)] = Padding(whole, shape)
    narrow = {**attrs, "kernel": str((part, columns)), "pad": str((0, beside))}
    rewriting.replace({**node, "attrs": narrow, "inputs": [split, weight, *bias]})


def join_flat(output: Any, example: Shape) -> Any:
    """Return the same graph, with joins in three dimensions; results keep their bits.

    The gradient of MXNet's `Concat` in two or four dimensions runs in oneDNN and leaks 0.9 kB for
    each input: 15 kB a step of SqueezeNet 1.1, 103 kB of DenseNet-121. In three dimensions MXNet
    joins without oneDNN. As oneDNN's layouts end there, a step takes longer: with AVX2, by 30 to
    38% (SqueezeNet) and 10 to 22% (DenseNet).

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
    rewriting = Rewriting(graph, {})
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
    # 0 keeps the length of an axis; -1 is the product of the others.
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


LIMIT = "DNNL_MAX_CPU_ISA"

# The number of channels in a block, and the CPU flag it needs; the best come first. oneDNN's fast
# convolutions compute a whole block at once. SSE4.1 has none here: in two measurements of LeNet-5
# it was not clear whether blocks of 8 save time.
BLOCKS = ((16, "avx512f"), (8, "avx2"), (8, "avx"))
NO_BLOCKS = 1

# The flags that each limit allows; oneDNN ignores any other value, and lower case.
_ALLOWED = {
    "SSE41": frozenset[str](),
    "AVX": frozenset({"avx"}),
    "AVX2": frozenset({"avx", "avx2"}),
    "AVX2_VNNI": frozenset({"avx", "avx2"}),
}


def channels_in_a_block(flags: Collection[str], limit: str | None) -> int:
    """Return how many channels are in a block of oneDNN's fast convolutions; 1 if it has none.

    oneDNN does not export this, so it is derived as oneDNN 2.4 does, the version in MXNet 1.9.1.

    Args:
        flags: the CPU's flags, as Linux names them.
        limit: the value of `DNNL_MAX_CPU_ISA`, or None.
    """
    every = {flag for _, flag in BLOCKS}
    usable = every.intersection(flags) & _ALLOWED.get(limit or "", every)
    return next((channels for channels, flag in BLOCKS if flag in usable), NO_BLOCKS)


@lru_cache(maxsize=1)
def block() -> int:
    """Return how many channels are in a block in this process; oneDNN reads its limit once, too."""
    return channels_in_a_block(cpu_flags(), os.environ.get(LIMIT))


def read_block() -> int:
    """Return how many channels are in a block that a convolution reads in this process."""
    return LEAST_BLOCK if has_half_units() and block() > LEAST_BLOCK else block()


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
    """Return whether a node is such a convolution, and alone reads its weights and its bias."""
    if not is_convolution(node):
        return False
    own = [source for source, *_ in node["inputs"][1:]]
    read = [source for other in nodes for source, *_ in other["inputs"] if source in own]
    return sorted(own) == sorted(read) and all(nodes[source]["op"] == "null" for source in own)


class Rewriting:
    """The nodes of a new graph. Each node of the old graph is kept or replaced, in order.

    Attributes:
        paddings: those of the parameters.
    """

    def __init__(self, graph: dict[str, Any], paddings: Paddings):
        self._old = graph
        self.paddings = paddings
        self._nodes: list[Node] = []
        self._number: list[int] = []

    def keep(self, node: Node) -> None:
        """Add the next old node unchanged."""
        self.replace({**node, "inputs": self.renumbered(node["inputs"])})

    def replace(self, node: Node) -> None:
        """Add a node in place of the next old one; its inputs are new entries."""
        self._number.append(self._add(node))

    def renumbered(self, entries: list[Entry]) -> list[Entry]:
        """Return the new entries of old ones."""
        return [[self._number[source], *rest] for source, *rest in entries]

    def name(self, entry: Entry) -> str:
        """Return the name of the node of a new entry."""
        return str(self._nodes[entry[0]]["name"])

    def variable(self, name: str) -> Entry:
        """Add an argument of the graph; return it."""
        return [self._add({"op": "null", "name": name, "inputs": []}), 0, 0]

    def operator(
        self, operator: str, name: str, inputs: list[Entry], attrs: Mapping[str, object]
    ) -> Entry:
        """Add an operator on new entries; return its output."""
        texts = {key: str(value) for key, value in attrs.items()}
        node = {"op": operator, "name": name, "attrs": texts, "inputs": inputs}
        return [self._add(node), 0, 0]

    def symbol(self) -> Any:
        """Return the new graph."""
        heads = self.renumbered(self._old["heads"])
        for node in self._nodes:
            if node["op"] == "null" and node["name"] in self.paddings:
                shape = {"__shape__": str(self.paddings[node["name"]].shape)}
                node["attrs"] = {**node.get("attrs", {}), **shape}
        return symbol_of({"nodes": self._nodes, "heads": heads, "attrs": self._old["attrs"]})

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


def symbol_of(graph: dict[str, Any]) -> Any:
    """Return the symbol of a graph in JSON."""
    arguments = [i for i, node in enumerate(graph["nodes"]) if node["op"] == "null"]
    return mx.sym.load_json(json.dumps({**graph, "arg_nodes": arguments}))
