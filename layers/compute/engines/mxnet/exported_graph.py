"""The graph of a model for export, with names that do not depend on the process."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mxnet as mx
import numpy as np

from layers.compute.engines.mxnet.parameters import Definition
from layers.compute.errors import ComputeError

INPUT, OUTPUT = "input", "output"

Shape = tuple[int, ...]
# The batch from which shapes are inferred.
_BATCH = 2


@dataclass(frozen=True)
class Node:
    """An operator, or with the operator "null" the input or a parameter.

    Attributes:
        index: the number of the node.
        op: MXNet's name of the operator.
        name: `INPUT`, the structural name of a parameter, or another unique name.
        attributes: the settings, as MXNet writes them.
        inputs: the number of the node and of its output, for each input.
    """

    index: int
    op: str
    name: str
    attributes: Mapping[str, str]
    inputs: tuple[tuple[int, int], ...]

    def value(self, key: str, default: Any = None) -> Any:
        """Return a setting that is a number, a tuple, a truth value or None."""
        text = self.attributes.get(key)
        return default if text is None else ast.literal_eval(text)

    def text(self, key: str, default: str = "") -> str:
        """Return a setting that is text."""
        return self.attributes.get(key, default)


@dataclass(frozen=True)
class Graph:
    """A model's operators in order of computation, from `INPUT` to `OUTPUT`.

    Attributes:
        definition: the model.
        symbol: the graph with the names of `nodes`, as an MXNet symbol.
        nodes: the operators, the input and the parameters.
    """

    definition: Definition
    symbol: Any
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, definition: Definition) -> Graph:
        """Return the graph of a model.

        Raises:
            ComputeError: the model has no graph, because its forward pass is plain Python.
        """
        if definition.symbol is None:
            raise ComputeError(
                "the model is a plain Block, which has no graph to export; "
                "make it a HybridBlock, or export its weights alone as safetensors"
            )
        graph = json.loads(definition.symbol.tojson())
        head = graph["heads"][0][0]
        for index, node in enumerate(graph["nodes"]):
            if node["op"] == "null":
                name = node["name"]
                node["name"] = INPUT if name == "data" else definition.names[name]
                node.pop("attrs", None)
            else:
                plain = node["op"].strip("_").lower()
                node["name"] = OUTPUT if index == head else f"{plain}_{index}"
        nodes = tuple(
            Node(
                index,
                node["op"],
                node["name"],
                node.get("attrs", {}),
                tuple((source, output) for source, output, *_ in node["inputs"]),
            )
            for index, node in enumerate(graph["nodes"])
        )
        return cls(definition, mx.sym.load_json(json.dumps(graph)), nodes)

    @cached_property
    def _shapes(self) -> Mapping[str, Shape]:
        inner = self.symbol.get_internals()
        known = {n: s for n, s in self.definition.shapes.items() if n in inner.list_arguments()}
        _, shapes, _ = inner.infer_shape(
            **known, **{INPUT: (_BATCH, *self.definition.example_shape)}
        )
        return dict(zip(inner.list_outputs(), shapes, strict=True))

    def shape(self, index: int) -> Shape:
        """Return the shape of a node's first output, for a batch of two."""
        name = self.nodes[index].name
        for key in (name, f"{name}_output", f"{name}_output0"):
            if key in self._shapes:
                return tuple(self._shapes[key])
        raise ComputeError(f"operator {self.nodes[index].op}: its shape is not known")

    def axis(self, node: Node) -> int:
        """Return the axis that a LayerNorm normalises, from 0; -1 for the last one."""
        rank = len(self.shape(node.inputs[0][0]))
        axis = node.value("axis", -1) % rank
        return -1 if axis == rank - 1 else int(axis)

    def readers(self, index: int) -> list[int]:
        """Return the nodes that read an output of a node."""
        return [i for i, node in enumerate(self.nodes) if any(s == index for s, _ in node.inputs)]

    @property
    def input(self) -> Node:
        """The model's input."""
        return next(node for node in self.nodes if node.name == INPUT)

    @property
    def takes_tokens(self) -> bool:
        """Whether the input is tokens: it is only looked up in tables of vectors."""
        return all(self.nodes[i].op == "Embedding" for i in self.readers(self.input.index))

    def tokens(self) -> int:
        """Return how many tokens the first table of vectors has."""
        return int(next(node for node in self.nodes if node.op == "Embedding").value("input_dim"))

    def recurrent_parameters(self, node: Node) -> list[str]:
        """Return the names of an RNN operator's weights and biases.

        These are, for each layer and direction, the weights of the input and of the state; then the
        biases, in the same order.

        Raises:
            ComputeError: the operator's parameters are not joined as in Gluon's layers.
        """
        joined = self.nodes[node.inputs[1][0]]
        sources = [self.nodes[source] for source, _ in joined.inputs]
        flat = [self.nodes[s.inputs[0][0]] if s.op == "Reshape" else s for s in sources]
        if joined.op != "_rnn_param_concat" or any(source.op != "null" for source in flat):
            raise ComputeError("operator RNN: only Gluon's own RNN, GRU and LSTM can be exported")
        return [source.name for source in flat]

    def check_recurrent(self, node: Node) -> None:
        """Check that a recurrent layer starts from zeros, and that its state is not used.

        Raises:
            ComputeError: one of these does not hold.
        """
        states = [self.nodes[source] for source, _ in node.inputs[2:]]
        used = {o for n in self.nodes for source, o in n.inputs if source == node.index}
        if any(state.op != "_zeros" for state in states) or used - {0}:
            raise ComputeError(
                "operator RNN: only layers that start from zeros and whose state is not used "
                "can be exported"
            )
        odd = ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max")
        if any(node.value(key) is not None for key in odd) or node.value("use_sequence_length"):
            raise ComputeError(f"operator RNN: none of {', '.join(odd)} can be exported")


def fixed_scales(graph: Graph) -> frozenset[str]:
    """Return the names of the scales that BatchNorm fixes at 1, whatever their value is."""
    return frozenset(
        graph.nodes[node.inputs[1][0]].name
        for node in graph.nodes
        if node.op == "BatchNorm" and node.value("fix_gamma", True)
    )


def exported_values(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values of the parameters in the graph, as the model uses them."""
    ones = fixed_scales(graph)
    used = [node.name for node in graph.nodes if node.op == "null" and node.name != INPUT]
    return {
        name: np.ones_like(values[name]) if name in ones else values[name]
        for name in dict.fromkeys(used)
    }
