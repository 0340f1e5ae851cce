"""The graph of a model, with names that do not depend on what the process built before."""

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
# An example batch, to infer shapes; any number that no layer has by chance.
_BATCH = 2


@dataclass(frozen=True)
class Node:
    """An operator, or with the operator "null" the input or a parameter.

    Attributes:
        op: MXNet's name of the operator.
        name: `INPUT`, the structural name of a parameter, or a name of the node's own.
        attributes: the settings, as MXNet writes them.
        inputs: for each input, the node and which of its outputs.
    """

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
        symbol: the same graph as an MXNet symbol.
        nodes: the operators, the input and the parameters.
        parameter_shapes: the shape of each parameter.
        constants: the parameters that training does not change.
        example_shape: the shape of one input, without the batch.
    """

    symbol: Any
    nodes: tuple[Node, ...]
    parameter_shapes: Mapping[str, Shape]
    constants: frozenset[str]
    example_shape: Shape

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
                node["op"],
                node["name"],
                node.get("attrs", {}),
                tuple((source, output) for source, output, *_ in node["inputs"]),
            )
            for node in graph["nodes"]
        )
        symbol = mx.sym.load_json(json.dumps(graph))
        return cls(
            symbol,
            nodes,
            definition.shapes,
            frozenset(definition.constants),
            definition.example_shape,
        )

    @cached_property
    def _shapes(self) -> Mapping[str, Shape]:
        inner = self.symbol.get_internals()
        known = {n: s for n, s in self.parameter_shapes.items() if n in inner.list_arguments()}
        _, shapes, _ = inner.infer_shape(**known, **{INPUT: (_BATCH, *self.example_shape)})
        return dict(zip(inner.list_outputs(), shapes, strict=True))

    def shape(self, index: int) -> Shape:
        """Return the shape of a node's first output, for a batch of two."""
        name = self.nodes[index].name
        for key in (name, f"{name}_output", f"{name}_output0"):
            if key in self._shapes:
                return tuple(self._shapes[key])
        raise ComputeError(f"operator {self.nodes[index].op}: its shape is not known")

    def readers(self, index: int) -> list[int]:
        """Return the nodes that read an output of a node."""
        return [i for i, node in enumerate(self.nodes) if any(s == index for s, _ in node.inputs)]

    @property
    def takes_tokens(self) -> bool:
        """Whether the input is only looked up in tables of vectors, so that it is whole numbers."""
        index = next(i for i, node in enumerate(self.nodes) if node.name == INPUT)
        return all(self.nodes[reader].op == "Embedding" for reader in self.readers(index))

    def tokens(self) -> int:
        """Return how many tokens the table of vectors has that is looked up first."""
        return int(next(node for node in self.nodes if node.op == "Embedding").value("input_dim"))

    def recurrent_parameters(self, node: Node) -> list[str]:
        """Return the names of an RNN operator's weights and biases.

        For each layer and direction they are the input's and the state's weights; then, in the same
        order, the biases.

        Raises:
            ComputeError: the operator's parameters are computed otherwise than in Gluon's layers.
        """
        joined = self.nodes[node.inputs[1][0]]
        sources = [self.nodes[source] for source, _ in joined.inputs]
        flat = [self.nodes[s.inputs[0][0]] if s.op == "Reshape" else s for s in sources]
        if joined.op != "_rnn_param_concat" or any(source.op != "null" for source in flat):
            raise ComputeError("operator RNN: only Gluon's own RNN, GRU and LSTM can be exported")
        return [source.name for source in flat]

    def check_recurrent(self, node: Node, index: int) -> None:
        """Check that a recurrent layer begins from zeros and that only its output is used.

        Raises:
            ComputeError: it is otherwise.
        """
        states = [self.nodes[source] for source, _ in node.inputs[2:]]
        used = {o for n in self.nodes for source, o in n.inputs if source == index}
        if any(state.op != "_zeros" for state in states) or used - {0}:
            raise ComputeError(
                "operator RNN: only layers that begin from zeros and whose state is not used "
                "can be exported"
            )
        odd = ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max")
        if any(node.value(key) is not None for key in odd) or node.value("use_sequence_length"):
            raise ComputeError(f"operator RNN: none of {', '.join(odd)} can be exported")


def fixed_scales(graph: Graph) -> frozenset[str]:
    """Return the names of scales that BatchNorm takes as 1, whatever their value is."""
    return frozenset(
        graph.nodes[node.inputs[1][0]].name
        for node in graph.nodes
        if node.op == "BatchNorm" and node.value("fix_gamma", True)
    )


def exported_values(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values of the parameters that the graph uses, as the model computes with them."""
    ones = fixed_scales(graph)
    used = [node.name for node in graph.nodes if node.op == "null" and node.name != INPUT]
    return {
        name: np.ones_like(values[name]) if name in ones else values[name]
        for name in dict.fromkeys(used)
    }
