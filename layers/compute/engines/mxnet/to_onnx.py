"""A model in ONNX, written by MXNet's exporter: a graph of opset 13 with its weights.

The weights have the engine's names, so that they can be read back. The batch may have any size.
Importing this module raises `ComputeError` if the package onnx is missing.

MXNet 1.9.1 was written for onnx 1.7 and 1.8. Newer versions dropped one module that it uses,
`onnx.mapping`, the tables of element types (in onnx 1.19), and check a graph by the newest opset
unless they are told another. MXNet's modules get these tables and the check of opset 13 while they
export; the user's onnx does not change.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from layers.compute.engines.mxnet.exported_graph import INPUT, OUTPUT, Graph, Node, exported_values
from layers.compute.engines.mxnet.parameters import Definition
from layers.compute.engines.onnx_file import TensorProto, helper, numpy_helper, onnx
from layers.compute.errors import ComputeError, one_line

OPSET = 13  # the newest of MXNet 1.9.1; every runtime since 2021 reads it
_IR_VERSION = 7  # of onnx 1.8, which introduced opset 13; the installed onnx would write its newest
_BATCH = "batch"


def onnx_model(
    definition: Definition, values: Mapping[str, np.ndarray], notes: Mapping[str, str]
) -> bytes:
    """Return a model as an ONNX file.

    Args:
        definition: the model.
        values: the value of each parameter, buffer and constant, by its structural name.
        notes: about the model; they become the file's metadata.

    Raises:
        ComputeError: the model has an operator that cannot be translated.
    """
    graph = Graph.of(definition)
    exported = exported_values(graph, values)
    proto = _translated(graph, exported)
    _tidy(proto, graph, exported)
    del proto.output[:]
    proto.output.append(
        helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, (_BATCH, *definition.outputs))
    )
    proto.name = notes.get("model", "model")
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="fedmx",
        producer_version=notes.get("fedmx", ""),
        doc_string=notes.get("input", ""),
    )
    helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _translated(graph: Graph, values: Mapping[str, np.ndarray]) -> Any:
    """Return the graph as MXNet's exporter writes it.

    Raises:
        ComputeError: there is an operator that it cannot write.
    """
    import mxnet as mx
    from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

    kind = TensorProto.INT64 if graph.takes_tokens else TensorProto.FLOAT
    shape = (1, *graph.definition.example_shape)
    with dropped_names(), _own_translations(MXNetGraph.registry_, graph):
        try:
            return MXNetGraph().create_onnx_graph_proto(
                graph.symbol,
                {name: mx.nd.array(value) for name, value in values.items()},
                [shape],
                [int(kind)],
                opset_version=OPSET,
                dynamic=True,
                dynamic_input_shapes=[(_BATCH, *graph.definition.example_shape)],
            )
        except ComputeError:
            raise
        except Exception as error:
            raise ComputeError(
                f"the model cannot be written as ONNX: MXNet's exporter says: {one_line(error)}"
            ) from error


@contextmanager
def _own_translations(registry: dict[int, dict[str, Any]], graph: Graph) -> Iterator[None]:
    """Let MXNet's exporter use our translations of four operators, for this graph.

    Recurrent layers: see `recurrent_nodes`. Parameters: MXNet writes them number by number, which
    takes 14 s for ResNet-18; here they are only declared, and `_tidy` adds their values. Dense
    layers: MXNet's translation takes a missing `flatten` for False, and the operator for True.
    Layer normalisation: MXNet's translation knows the axis -1, and others from 0 on.
    """
    nodes = {node.name: node for node in graph.nodes}
    table = registry.setdefault(OPSET, {})
    kept = {op: table.get(op) for op in ("RNN", "null", "FullyConnected", "LayerNorm")}
    input_or_parameter, dense = registry[12]["null"], registry[12]["FullyConnected"]
    layer_norm = table["LayerNorm"]

    def convert_recurrent(node: dict[str, Any], **given: Any) -> Any:
        source, output = node["inputs"][0][:2]
        data = given["outputs_lookup"][source][output]
        made = recurrent_nodes(graph, nodes[node["name"]], data.name, given["initializer"])
        return made, (data.dtype,)

    def convert_dense(node: dict[str, Any], **given: Any) -> Any:
        return dense({**node, "attrs": {"flatten": "True", **node["attrs"]}}, **given)

    def convert_layer_norm(node: dict[str, Any], **given: Any) -> Any:
        axis = str(graph.axis(nodes[node["name"]]))
        return layer_norm({**node, "attrs": {**node["attrs"], "axis": axis}}, **given)

    def convert_parameter(node: dict[str, Any], **given: Any) -> Any:
        if given["is_input"]:
            return input_or_parameter(node, **given)
        value = given["weights"][node["name"]]
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return [helper.make_tensor_value_info(node["name"], kind, value.shape)], (value.dtype,)

    table.update(
        {
            "RNN": convert_recurrent,
            "null": convert_parameter,
            "FullyConnected": convert_dense,
            "LayerNorm": convert_layer_norm,
        }
    )
    try:
        yield
    finally:
        for op, own in kept.items():
            if own is None:
                del table[op]
            else:
                table[op] = own


def _tidy(proto: Any, graph: Graph, values: Mapping[str, np.ndarray]) -> None:
    """Keep only the nodes that the output needs, with the model's input as the only input.

    MXNet's exporter also lists all weights as inputs, so that runtimes cannot optimise them.
    """
    needed, nodes = {OUTPUT}, []
    for node in reversed(proto.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input)
    kept = [tensor for tensor in proto.initializer if tensor.name in needed]
    weights = [numpy_helper.from_array(v, name) for name, v in values.items() if name in needed]
    inputs = [one for one in proto.input if one.name == INPUT]
    for field, content in (
        (proto.node, list(reversed(nodes))),
        (proto.initializer, [*weights, *kept]),
        (proto.input, inputs),
    ):
        copies = [type(one).FromString(one.SerializeToString()) for one in content]
        del field[:]
        field.extend(copies)


_lock = threading.Lock()


class _Table:
    """A table that computes its entries."""

    def __init__(self, entry: Callable[[Any], Any]) -> None:
        self._entry = entry

    def __getitem__(self, key: Any) -> Any:
        return self._entry(key)


def _mapping() -> ModuleType:
    """Return `onnx.mapping` with the two tables that MXNet uses."""
    module = ModuleType("onnx.mapping")
    types: Any = module
    types.NP_TYPE_TO_TENSOR_TYPE = _Table(
        lambda dtype: int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    )
    types.TENSOR_TYPE_TO_NP_TYPE = _Table(helper.tensor_dtype_to_np_dtype)
    return module


def _check_graph(graph: Any) -> None:
    """Check a graph by our opset."""
    opset = helper.make_opsetid("", OPSET)
    onnx.checker.check_model(
        helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
    )


class _Onnx(ModuleType):
    """The module onnx for MXNet's exporter and its translations of operators."""

    def __init__(self) -> None:
        super().__init__("onnx")
        self.mapping = _mapping()
        self.checker = SimpleNamespace(check_graph=_check_graph)

    def __getattr__(self, name: str) -> Any:
        return getattr(onnx, name)


@contextmanager
def dropped_names() -> Iterator[None]:
    """Give MXNet's exporter the names that onnx dropped, and the check of our opset."""
    # This loads mxnet.onnx.
    from mxnet.onnx.mx2onnx import _op_translations as translations

    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith(f"{translations.__name__}.") and hasattr(module, "onnx")
    ]
    for_mxnet = _Onnx()
    with _lock:
        kept = [(module, module.onnx) for module in modules]
        sys.modules["onnx"] = for_mxnet  # for `from onnx import mapping` in functions
        for module in modules:
            module.onnx = for_mxnet  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for module, own in kept:
                module.onnx = own  # type: ignore[attr-defined]
            sys.modules["onnx"] = onnx


# The operator in ONNX, and the place of each of its gates in MXNet's weights.
OPERATORS = {
    "lstm": ("LSTM", (0, 3, 1, 2)),  # i o f c from i f c o
    "gru": ("GRU", (1, 0, 2)),  # z r h from r z h
    "rnn_tanh": ("RNN", (0,)),
    "rnn_relu": ("RNN", (0,)),
}


def recurrent_nodes(graph: Graph, node: Node, data: str, initializers: list[Any]) -> list[Any]:
    """Return the ONNX nodes of an RNN operator, whose output has the operator's name.

    MXNet's exporter takes each layer's input for a state, so the weights of a second layer are
    wrong unless the input has as many values as the state. This translates Gluon's RNN, GRU and
    LSTM, with any number of layers and in both directions.

    Args:
        graph: the model.
        node: the RNN operator.
        data: the name of the layer's input (time, batch, values).
        initializers: the graph's initialisers, to which constants are added.

    Raises:
        ComputeError: the operator is not used as in Gluon's layers.
    """
    graph.check_recurrent(node)
    operator, gates = OPERATORS[node.text("mode")]
    directions = 2 if node.value("bidirectional", False) else 1
    layers, size = node.value("num_layers"), node.value("state_size")
    names = graph.recurrent_parameters(node)
    weights, biases = names[: len(names) // 2], names[len(names) // 2 :]
    nodes: list[Any] = []
    constants: dict[str, list[int]] = {
        f"{node.name}.axis0": [0],
        f"{node.name}.axis1": [1],
        f"{node.name}.joined": [0, 0, -1],
    }
    initializers += [
        helper.make_tensor(name, TensorProto.INT64, (len(value),), value)
        for name, value in constants.items()
    ]
    axis0, axis1, joined = constants

    def in_order(parameter: str) -> str:
        """Return the name of a parameter with its gates in ONNX's order."""
        parts = [f"{parameter}.gate{i}" for i in range(len(gates))]
        if len(gates) > 1:
            nodes.append(helper.make_node("Split", [parameter], parts, axis=0))
            ordered = f"{parameter}.gates"
            nodes.append(helper.make_node("Concat", [parts[g] for g in gates], [ordered], axis=0))
            return ordered
        return parameter

    def stacked(parts: Sequence[str], name: str) -> str:
        """Return the name of tensors stacked along a new first axis, that of directions."""
        rows = [f"{name}.{i}" for i in range(len(parts))]
        for part, row in zip(parts, rows, strict=True):
            nodes.append(helper.make_node("Unsqueeze", [part, axis0], [row]))
        nodes.append(helper.make_node("Concat", rows, [name], axis=0))
        return name

    for layer in range(layers):
        own = range(2 * layer * directions, 2 * (layer + 1) * directions, 2)
        here = f"{node.name}.layer{layer}"
        both = []
        for i in own:
            both.append(f"{here}.bias{i}")
            parts = [in_order(biases[i]), in_order(biases[i + 1])]
            nodes.append(helper.make_node("Concat", parts, [both[-1]], axis=0))
        inputs = [
            data,
            stacked([in_order(weights[i]) for i in own], f"{here}.W"),
            stacked([in_order(weights[i + 1]) for i in own], f"{here}.R"),
            stacked(both, f"{here}.B"),
        ]
        more: dict[str, Any] = {"hidden_size": size}
        if directions == 2:
            more["direction"] = "bidirectional"
        if operator == "GRU":
            more["linear_before_reset"] = 1
        if node.text("mode") == "rnn_relu":
            more["activations"] = ["Relu"] * directions
        nodes.append(helper.make_node(operator, inputs, [f"{here}.Y"], name=here, **more))
        # (time, directions, batch, state) to (time, batch, directions x state)
        out = node.name if layer == layers - 1 else f"{here}.output"
        if directions == 1:
            nodes.append(helper.make_node("Squeeze", [f"{here}.Y", axis1], [out]))
        else:
            turned = f"{here}.turned"
            nodes.append(helper.make_node("Transpose", [f"{here}.Y"], [turned], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [turned, joined], [out]))
        data = out
    return nodes
