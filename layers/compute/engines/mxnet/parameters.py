"""The parameters of a model: names, places in the flat vector, and initial values.

Initial values are drawn by numpy from a seed, so they are equal in every process. MXNet's own
initialisers draw from a random state that the whole process shares; the usual ones are therefore
implemented here. Others run in MXNet with a seed, which changes that shared state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

from layers.compute.errors import ComputeError


@dataclass(frozen=True)
class Definition:
    """A model without its weights.

    Attributes:
        symbol: the model's graph from the input "data" to one output; None: it cannot be traced.
        names: the structural name of each parameter of the graph.
        shapes: the shape of each parameter and constant, by its structural name.
        constants: the value of each constant, float32, likewise.
        example_shape: the shape of one input, without the batch.
        outputs: how many outputs the model has for one input.
    """

    symbol: Any
    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, np.ndarray]
    example_shape: tuple[int, ...]
    outputs: int


def parameters(block: Any) -> list[tuple[str, Any]]:
    """Return (structural name, parameter) in the order of the block's tree, each parameter once.

    Gluon's own names count instances in the process ("conv3_weight"). A structural name is the path
    through the tree ("features.0.weight"), as in Gluon's `save_parameters`.

    Raises:
        ComputeError: a parameter is not float32.
    """
    named: list[tuple[str, Any]] = []
    seen: set[int] = set()
    for name, parameter in block._collect_params_with_prefix().items():
        if id(parameter) not in seen:
            seen.add(id(parameter))
            named.append((name, parameter))
    hidden = [p for p in block.collect_params().values() if id(p) not in seen]
    named += [(f"unnamed.{i}", parameter) for i, parameter in enumerate(hidden)]
    for name, parameter in named:
        if np.dtype(parameter.dtype) != np.float32:
            raise ComputeError(
                f"parameter {name} is {np.dtype(parameter.dtype).name}: models must be float32"
            )
    return named


def trainable(parameter: Any) -> bool:
    """Return whether a parameter has a gradient; others are buffers or constants."""
    return bool(parameter.grad_req != "null")


def constant(parameter: Any) -> bool:
    """Return whether a parameter is a `mx.gluon.Constant`, such as fixed word vectors.

    Constants are in neither vector, because every process that builds the model has them.
    """
    return isinstance(parameter, mx.gluon.Constant)


ALIGNMENT_BYTES = 64


class Tensor(NamedTuple):
    """The place of a tensor in a flat vector: elements `start` to `stop`, in C order."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


Layout = tuple[Tensor, ...]


def lay_out(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
    """Return the layout of named shapes, in order and without gaps."""
    tensors, start = [], 0
    for name, shape in shapes:
        stop = start + prod(shape)
        tensors.append(Tensor(name, tuple(shape), start, stop))
        start = stop
    return tuple(tensors)


def size(layout: Layout) -> int:
    """Return the number of elements of a vector with this layout."""
    return layout[-1].stop if layout else 0


def aligned(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Return zeros that start on a 64-byte boundary, where oneDNN's kernels are fastest."""
    kind = np.dtype(dtype)
    length = prod(shape) * kind.itemsize
    raw = np.zeros(length + ALIGNMENT_BYTES, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[offset : offset + length].view(kind).reshape(shape)


def share(array: np.ndarray) -> Any:
    """Return an NDArray over the memory of a C-contiguous array, which stays writable.

    MXNet must have finished (`mx.nd.waitall`) before numpy accesses the memory.
    """
    # from_numpy makes its argument read-only, so it gets a view.
    return mx.nd.from_numpy(array.view(), zero_copy=True)


class FlatVector:
    """One contiguous, 64-byte aligned float32 vector (d,) and an NDArray view for each tensor.

    A view is a separate NDArray over its part of the memory, not an MXNet slice, because some
    operators refuse slices.
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.array = aligned((size(layout),))
        # MXNet has no zero-length arrays, except in its numpy mode.
        self.views: dict[str, Any] = {
            t.name: share(self.array[t.start : t.stop].reshape(t.shape))
            for t in layout
            if t.stop > t.start
        }
        self.readonly = self.array.view()
        self.readonly.flags.writeable = False


Rule = Callable[..., np.ndarray]


def _fans(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) < 2:
        raise ComputeError(
            f"parameter {name} of shape {shape} cannot be initialised by Xavier, which needs two "
            f"dimensions: give it an initialiser (init=...) in the model"
        )
    field = float(np.prod(shape[2:])) if len(shape) > 2 else 1.0
    return shape[1] * field, shape[0] * field


def _xavier(
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    rnd_type: str = "uniform",
    factor_type: str = "avg",
    magnitude: float = 3,
) -> np.ndarray:
    """Draw by Glorot & Bengio 2010, eq. 16, with MXNet's defaults."""
    fan_in, fan_out = _fans(name, shape)
    factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[factor_type]
    scale = float(np.sqrt(magnitude / factor))
    if rnd_type == "uniform":
        return rng.uniform(-scale, scale, shape)
    return rng.normal(0, scale, shape)


def _msra(
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    factor_type: str = "avg",
    slope: float = 0.25,
    **_: Any,
) -> np.ndarray:
    """Draw by He et al. 2015, eq. 15."""
    return _xavier(rng, name, shape, "gaussian", factor_type, 2.0 / (1 + slope**2))


def _zeros(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def _ones(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


RULES: dict[str, Rule] = {
    "zero": _zeros,
    "zeros": _zeros,
    "one": _ones,
    "ones": _ones,
    "constant": lambda rng, name, shape, value=0.0: np.full(shape, value),
    "uniform": lambda rng, name, shape, scale=0.07: rng.uniform(-scale, scale, shape),
    "normal": lambda rng, name, shape, sigma=0.01: rng.normal(0, sigma, shape),
    "xavier": _xavier,
    "msraprelu": _msra,
}

# The rule for a parameter without an initialiser, by the end of its name, as in Gluon.
DEFAULTS: tuple[tuple[str, Rule], ...] = (
    ("weight", _xavier),
    ("bias", _zeros),
    ("gamma", _ones),
    ("beta", _zeros),
    ("mean", _zeros),
    ("var", _ones),
)


_STANDARD = (
    mx.init.Zero,
    mx.init.One,
    mx.init.Constant,
    mx.init.Uniform,
    mx.init.Normal,
    mx.init.Xavier,
    mx.init.MSRAPrelu,
)


def _parse(init: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of an initialiser, given as an object, a name or JSON."""
    text = init if isinstance(init, str) else init.dumps()
    if not text.startswith("["):
        return text.lower(), {}
    key, settings = json.loads(text)
    return key.lower(), settings


def draw(parameter: Any, name: str, seed: int, index: int) -> np.ndarray:
    """Return the initial value, float32, of the `index`-th parameter of a model.

    Each parameter has its own random stream, so it does not depend on the others.

    Raises:
        ComputeError: it has no initialiser, and no rule fits its name or shape.
    """
    rng = np.random.default_rng([seed, index])
    shape = tuple(parameter.shape)
    if parameter.init is None:
        for ending, rule in DEFAULTS:
            if parameter.name.endswith(ending):
                return rule(rng, name, shape).astype(np.float32)
        raise ComputeError(
            f"parameter {name} has no initialiser and no usual name: "
            f"give it an initialiser (init=...) in the model"
        )
    key, settings = _parse(parameter.init)
    if type(parameter.init) in (str, *_STANDARD) and key in RULES:
        return RULES[key](rng, name, shape, **settings).astype(np.float32)
    return _by_mxnet(parameter, name, shape, [seed, index])


def _by_mxnet(parameter: Any, name: str, shape: tuple[int, ...], seed: list[int]) -> np.ndarray:
    value, state = mx.nd.zeros(shape), np.random.get_state()
    seed_mxnet(*seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(1)[0])
    try:
        description = mx.init.InitDesc(parameter.name, {"__init__": parameter.init})
        mx.init.Uniform()(description, value)
    except Exception as error:  # an unknown name, or a user's initialiser
        raise ComputeError(
            f"parameter {name} cannot be drawn with the initialiser {parameter.init!r}: {error}"
        ) from error
    finally:
        np.random.set_state(state)
    return np.asarray(value.asnumpy(), np.float32)


def seed_mxnet(*seed: int) -> None:
    """Seed the random numbers that MXNet's operators draw in the calling thread."""
    mx.random.seed(int(np.random.SeedSequence(seed).generate_state(1)[0] & 0x7FFFFFFF))
