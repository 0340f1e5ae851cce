"""A model as a PyTorch module: its source, and the names and values of its state_dict.

This does not need PyTorch. Layers are attributes (`conv1`, `fc2`), and `forward` has a line for
each operator, in MXNet's order of computation. MXNet and PyTorch store the same values: dense
layers flatten (channels, height, width) in this order, and an LSTM's gates are input, forget, cell,
output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.compute.engines.mxnet.exported_graph import Graph, Node, exported_values
from layers.compute.engines.mxnet.parameters import Definition
from layers.compute.errors import ComputeError

# The variables of `forward`, in order of preference.
_VARIABLES = ("x", "y", "z", "u", "v", "w")


@dataclass(frozen=True)
class TorchModule:
    """A model in PyTorch.

    Attributes:
        source: the class `Model`, with its imports; no docstring of the file.
        tensors: for each name of the state_dict, the structural name of the parameter in it.
        counters: further names of the state_dict: BatchNorm's numbers of batches, int64 ().
    """

    source: str
    tensors: Mapping[str, str]
    counters: tuple[str, ...]

    def state_dict(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the state_dict for the values that `exported_values` gives."""
        state = {name: values[own] for name, own in self.tensors.items()}
        return {**state, **{name: np.zeros((), np.int64) for name in self.counters}}


def torch_module(definition: Definition) -> TorchModule:
    """Return a model as a PyTorch module.

    Raises:
        ComputeError: it has an operator, or a setting of one, that has no translation.
    """
    graph = Graph.of(definition)
    layers = Layers(graph)
    lines = _forward(graph, layers)
    body = [
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
        "",
        "",
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in layers.lines),
        "",
        "    def forward(self, x):",
        *(f"        {line}" for line in lines),
    ]
    if not any("F." in line for line in lines):
        body.remove("import torch.nn.functional as F")
    if not any("torch." in line for line in lines):
        body.remove("import torch")
    return TorchModule("\n".join(body) + "\n", layers.tensors, tuple(layers.counters))


def torch_state(
    definition: Definition, values: Mapping[str, np.ndarray]
) -> tuple[TorchModule, dict[str, np.ndarray]]:
    """Return a model as a PyTorch module, and its state_dict.

    Args:
        definition: the model.
        values: the value of each parameter, buffer and constant, by its structural name.

    Raises:
        ComputeError: it has an operator, or a setting of one, that has no translation.
    """
    module = torch_module(definition)
    return module, module.state_dict(exported_values(Graph.of(definition), values))


def _forward(graph: Graph, layers: Layers) -> list[str]:
    """Return the lines of `forward`; a variable is reused after its last reader."""
    states = {"_zeros", "_rnn_param_concat"}
    for node in graph.nodes:
        if node.op not in {*OPERATORS, *states, "null"}:
            raise _untranslated(f"operator {node.op}")
        readers = (graph.nodes[reader] for reader in graph.readers(node.index))
        if node.op in states and any(reader.op != "RNN" for reader in readers):
            raise _untranslated(f"operator {node.op} outside of a recurrent layer")
    last_reader = [max(graph.readers(i), default=i) for i in range(len(graph.nodes))]
    start = graph.input.index
    variables = {start: "x"}
    lines = []
    for node in graph.nodes:
        if node.op not in OPERATORS or _reshapes_parameter(graph, node):
            continue
        if any(output for source, output in node.inputs if source in variables):
            raise _untranslated(f"operator {node.op} on the second output of another")
        sources = [source for source, _ in node.inputs if source in variables]
        if not sources:
            raise _untranslated(f"operator {node.op} of a parameter")
        expression = OPERATORS[node.op](layers, node, [variables[source] for source in sources])
        for source in list(variables):
            if last_reader[source] <= node.index:
                del variables[source]
        free = (name for name in _VARIABLES if name not in variables.values())
        variables[node.index] = target = next(free, f"x{node.index}")
        if expression != target:
            lines.append(f"{target} = {expression}")
    # The output is the last operator that is computed.
    if lines and lines[-1].startswith(f"{target} = "):
        lines[-1] = f"return {lines[-1].removeprefix(f'{target} = ')}"
    else:
        lines.append(f"return {target}")
    return lines


def _reshapes_parameter(graph: Graph, node: Node) -> bool:
    """Return whether a node only gives a parameter another shape, as recurrent layers do."""
    if node.op != "Reshape":
        return False
    source = graph.nodes[node.inputs[0][0]]
    return source.op == "null" and source != graph.input


class Layers:
    """The layers of a module, and the parameter in each tensor of its state_dict.

    Attributes:
        graph: the model.
        lines: the statements that make the layers.
        tensors: for each name of the state_dict, the structural name of the parameter in it.
        counters: the names in the state_dict without a parameter.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lines: list[str] = []
        self.tensors: dict[str, str] = {}
        self.counters: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, kind: str, expression: str) -> str:
        """Add a layer, and return its name, such as conv2."""
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        name = f"{kind}{self._numbers[kind]}"
        self.lines.append(f"self.{name} = {expression}")
        return name

    def put(self, layer: str, tensor: str, parameter: str) -> None:
        """Record that a layer's tensor holds a parameter.

        Raises:
            ComputeError: another layer has the same parameter.
        """
        if parameter in self.tensors.values():
            raise _untranslated(f"the parameter {parameter} of two layers")
        self.tensors[f"{layer}.{tensor}"] = parameter
        if parameter in self.graph.definition.constants:
            self.lines.append(f"self.{layer}.{tensor}.requires_grad_(False)")

    def parameter(self, node: Node, place: int) -> str:
        """Return the structural name of the parameter that is an input of an operator.

        Raises:
            ComputeError: that input is computed.
        """
        source = self.graph.nodes[node.inputs[place][0]]
        if source.op != "null":
            raise _untranslated(f"operator {node.op} with computed weights")
        return source.name

    def shape(self, node: Node, place: int = 0) -> tuple[int, ...]:
        """Return the shape of an input of an operator, for a batch of two."""
        return self.graph.shape(node.inputs[place][0])


Translation = Callable[[Layers, Node, list[str]], str]


def _untranslated(what: str) -> ComputeError:
    return ComputeError(
        f"the model cannot be written for PyTorch: no translation of {what}; export it as onnx"
    )


def _number(values: tuple[int, ...]) -> str:
    """Return (2, 2) as 2, and (2, 3) as it is."""
    return str(values[0]) if len(set(values)) == 1 else str(tuple(values))


def _settings(*given: tuple[str, Any, Any]) -> str:
    """Return keyword arguments from (name, value, default), without those at their default."""
    return "".join(f", {name}={value}" for name, value, default in given if value != default)


def _dimensions(layers: Layers, node: Node) -> int:
    """Return the number of spatial dimensions of a convolution or pooling.

    Raises:
        ComputeError: channels do not come first.
    """
    dimensions = len(layers.shape(node)) - 2
    usual = {1: "NCW", 2: "NCHW", 3: "NCDHW"}.get(dimensions)
    if node.text("layout", "None") not in ("None", usual):
        raise _untranslated(f"operator {node.op} with layout {node.text('layout')}")
    return dimensions


def _convolution(layers: Layers, node: Node, x: list[str]) -> str:
    n = _dimensions(layers, node)
    no_bias = node.value("no_bias", False)
    settings = _settings(
        ("stride", _number(node.value("stride", ()) or (1,) * n), "1"),
        ("padding", _number(node.value("pad", ()) or (0,) * n), "0"),
        ("dilation", _number(node.value("dilate", ()) or (1,) * n), "1"),
        ("groups", node.value("num_group", 1), 1),
        ("bias", not no_bias, True),
    )
    channels, filters = layers.shape(node)[1], node.value("num_filter")
    kernel = _number(node.value("kernel"))
    layer = layers.add(
        "conv", f"nn.Conv{n}d({channels}, {filters}, kernel_size={kernel}{settings})"
    )
    layers.put(layer, "weight", layers.parameter(node, 1))
    if not no_bias:
        layers.put(layer, "bias", layers.parameter(node, 2))
    return f"self.{layer}({x[0]})"


def _dense(layers: Layers, node: Node, x: list[str]) -> str:
    shape, no_bias = layers.shape(node), node.value("no_bias", False)
    values, given = shape[-1], x[0]
    if node.value("flatten", True) and len(shape) > 2:
        values, given = math.prod(shape[1:]), f"torch.flatten({given}, 1)"
    settings = _settings(("bias", not no_bias, True))
    layer = layers.add("fc", f"nn.Linear({values}, {node.value('num_hidden')}{settings})")
    layers.put(layer, "weight", layers.parameter(node, 1))
    if not no_bias:
        layers.put(layer, "bias", layers.parameter(node, 2))
    return f"self.{layer}({given})"


def _batch_norm(layers: Layers, node: Node, x: list[str]) -> str:
    shape = layers.shape(node)
    if node.value("axis", 1) != 1:
        raise _untranslated(f"operator BatchNorm with axis {node.value('axis')}")
    eps = node.value("eps", 1e-3)
    # PyTorch's momentum weights the new value, MXNet's the old one.
    momentum = round(1 - node.value("momentum", 0.9), 12)
    settings = _settings(("eps", eps, 1e-5), ("momentum", momentum, 0.1))
    kind = {2: 1, 3: 1, 4: 2, 5: 3}[len(shape)]
    layer = layers.add("bn", f"nn.BatchNorm{kind}d({shape[1]}{settings})")
    for place, tensor in enumerate(("weight", "bias", "running_mean", "running_var"), start=1):
        layers.put(layer, tensor, layers.parameter(node, place))
    layers.counters.append(f"{layer}.num_batches_tracked")
    return f"self.{layer}({x[0]})"


def _layer_norm(layers: Layers, node: Node, x: list[str]) -> str:
    shape, axis = layers.shape(node), layers.graph.axis(node)
    settings = _settings(("eps", node.value("eps", 1e-5), 1e-5))
    layer = layers.add("ln", f"nn.LayerNorm({shape[axis]}{settings})")
    for place, tensor in enumerate(("weight", "bias"), start=1):
        layers.put(layer, tensor, layers.parameter(node, place))
    if axis == -1:
        return f"self.{layer}({x[0]})"
    turned = f"transpose({axis}, -1)"  # PyTorch normalises the last axis alone
    return f"self.{layer}({x[0]}.{turned}).{turned}"


def _pooling(layers: Layers, node: Node, x: list[str]) -> str:
    n, kind = _dimensions(layers, node), node.text("pool_type", "max")
    if kind not in ("max", "avg"):
        raise _untranslated(f"operator Pooling of type {kind}")
    if node.value("global_pool", False):
        return f"F.adaptive_{kind}_pool{n}d({x[0]}, 1)"
    kernel = node.value("kernel")
    stride, pad = node.value("stride", ()) or (1,) * n, node.value("pad", ()) or (0,) * n
    convention = node.text("pooling_convention", "valid")
    ceil = convention == "full"
    here, there = layers.shape(node)[2:], layers.graph.shape(node.index)[2:]
    for size, k, s, p, expected in zip(here, kernel, stride, pad, there, strict=True):
        steps = size + 2 * p - k
        out = (-(-steps // s) if ceil else steps // s) + 1
        if ceil and (out - 1) * s >= size + p:  # PyTorch leaves out a window beyond the image
            out -= 1
        if convention not in ("valid", "full") or out != expected or 2 * p > k:
            raise _untranslated(f"operator Pooling with convention {convention} and padding {pad}")
    settings = _settings(
        ("stride", _number(stride), _number(kernel)),
        ("padding", _number(pad), "0"),
        ("ceil_mode", ceil, False),
    )
    if kind == "avg":
        settings += _settings(("count_include_pad", node.value("count_include_pad", True), True))
    return f"F.{kind}_pool{n}d({x[0]}, {_number(kernel)}{settings})"


def _activation(layers: Layers, node: Node, x: list[str]) -> str:
    kind = node.text("act_type")
    functions = {
        "relu": "torch.relu",
        "sigmoid": "torch.sigmoid",
        "tanh": "torch.tanh",
        "softrelu": "F.softplus",
        "softsign": "F.softsign",
    }
    if kind not in functions:
        raise _untranslated(f"activation {kind}")
    return f"{functions[kind]}({x[0]})"


def _leaky(layers: Layers, node: Node, x: list[str]) -> str:
    kind, slope = node.text("act_type", "leaky"), node.value("slope", 0.25)
    if kind == "leaky":
        return f"F.leaky_relu({x[0]}, {slope})"
    if kind == "elu":
        return f"F.elu({x[0]}, {slope})"
    if kind in ("selu", "gelu"):
        return f"F.{kind}({x[0]})"
    raise _untranslated(f"activation {kind}")


def _dropout(layers: Layers, node: Node, x: list[str]) -> str:
    axes, rank = node.value("axes", ()), len(layers.shape(node))
    if axes and tuple(axes) != tuple(range(2, rank)):
        raise _untranslated(f"operator Dropout over the axes {axes}")
    kind = f"Dropout{rank - 2}d" if axes else "Dropout"
    layer = layers.add("dropout", f"nn.{kind}({node.value('p', 0.5)})")
    return f"self.{layer}({x[0]})"


def _embedding(layers: Layers, node: Node, x: list[str]) -> str:
    layer = layers.add(
        "embedding", f"nn.Embedding({node.value('input_dim')}, {node.value('output_dim')})"
    )
    layers.put(layer, "weight", layers.parameter(node, 1))
    return f"self.{layer}({x[0]}.long())"


def _recurrent(layers: Layers, node: Node, x: list[str]) -> str:
    layers.graph.check_recurrent(node)
    mode, number = node.text("mode"), node.value("num_layers", 1)
    both = node.value("bidirectional", False)
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(mode, "RNN")
    settings = _settings(
        ("num_layers", number, 1),
        ("nonlinearity", repr(mode.removeprefix("rnn_")) if kind == "RNN" else "'tanh'", "'tanh'"),
        ("dropout", node.value("p", 0) or 0, 0),
        ("bidirectional", both, False),
    )
    values, size = layers.shape(node)[-1], node.value("state_size")
    layer = layers.add(kind.lower(), f"nn.{kind}({values}, {size}{settings})")
    names = layers.graph.recurrent_parameters(node)
    places = [f"l{i}{end}" for i in range(number) for end in (("", "_reverse") if both else ("",))]
    tensors = [
        f"{what}_{source}_{place}"
        for what in ("weight", "bias")
        for place in places
        for source in ("ih", "hh")
    ]
    for tensor, name in zip(tensors, names, strict=True):
        layers.put(layer, tensor, name)
    return f"self.{layer}({x[0]})[0]"


def _reshape(layers: Layers, node: Node, x: list[str]) -> str:
    shape = node.value("shape")
    here, there = layers.shape(node), layers.graph.shape(node.index)
    if any(size < -1 for size in shape) or here[0] != there[0]:
        raise _untranslated(f"operator Reshape to {shape}")
    return f"{x[0]}.reshape(-1, {', '.join(map(str, there[1:]))})"


def _slice_axis(layers: Layers, node: Node, x: list[str]) -> str:
    axis, begin, end = node.value("axis"), node.value("begin"), node.value("end")
    axis %= len(layers.shape(node))
    part = f"{begin or ''}:{'' if end is None else end}"
    return f"{x[0]}[{':, ' * axis}{part}]"


def _swap(layers: Layers, node: Node, x: list[str]) -> str:
    return f"{x[0]}.transpose({node.value('dim1', 0)}, {node.value('dim2', 0)})"


def _concat(layers: Layers, node: Node, x: list[str]) -> str:
    if len(x) != len(node.inputs):
        raise _untranslated(f"operator {node.op} with a parameter")
    return f"torch.cat([{', '.join(x)}], {node.value('dim', 1)})"


def _clip(layers: Layers, node: Node, x: list[str]) -> str:
    return f"{x[0]}.clamp({node.value('a_min')}, {node.value('a_max')})"


def _plain(expression: str, inputs: int = 1) -> Translation:
    """Return the translation of an operator without settings; {0} and {1} are its inputs."""

    def translate(layers: Layers, node: Node, x: list[str]) -> str:
        if len(x) != inputs:
            raise _untranslated(f"operator {node.op} with a parameter")
        return expression.format(*x)

    return translate


OPERATORS: dict[str, Translation] = {
    "_copy": _plain("{0}"),
    "Activation": _activation,
    "BatchNorm": _batch_norm,
    "Concat": _concat,
    "Convolution": _convolution,
    "Dropout": _dropout,
    "Embedding": _embedding,
    "Flatten": _plain("torch.flatten({0}, 1)"),
    "FullyConnected": _dense,
    "LayerNorm": _layer_norm,
    "LeakyReLU": _leaky,
    "Pooling": _pooling,
    "RNN": _recurrent,
    "Reshape": _reshape,
    "SwapAxis": _swap,
    "broadcast_add": _plain("{0} + {1}", 2),
    "broadcast_mul": _plain("{0} * {1}", 2),
    "clip": _clip,
    "elemwise_add": _plain("{0} + {1}", 2),
    "elemwise_mul": _plain("{0} * {1}", 2),
    "relu": _plain("torch.relu({0})"),
    "sigmoid": _plain("torch.sigmoid({0})"),
    "slice_axis": _slice_axis,
    "tanh": _plain("torch.tanh({0})"),
}
