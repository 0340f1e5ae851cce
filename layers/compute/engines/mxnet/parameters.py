"""The parameters of a model: names, places in the flat vector, and initial values.

Initial values are drawn by numpy from a seed, so they are equal in every process. MXNet's own
initialisers draw from a random state that the whole process shares; the usual ones are therefore
implemented here. Others run in MXNet with a seed, which changes that shared state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np

from layers.compute.engines import definition
from layers.compute.engines.initial import RULES, draw_by_name, stream
from layers.compute.engines.layout import FlatVector, Layout
from layers.compute.errors import ComputeError


@dataclass(frozen=True)
class Definition(definition.Definition):
    """A model without its weights, with its graph.

    Attributes:
        symbol: the model's graph from the input "data" to one output; None: it cannot be traced.
        names: the structural name of each parameter of the graph.
    """

    symbol: Any
    names: Mapping[str, str]


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


def share(array: np.ndarray) -> Any:
    """Return an NDArray over the memory of a C-contiguous array, which stays writable.

    MXNet must have finished (`mx.nd.waitall`) before numpy accesses the memory.
    """
    # from_numpy makes its argument read-only, so it gets a view.
    return mx.nd.from_numpy(array.view(), zero_copy=True)


class SharedVector(FlatVector):
    """A flat vector with an NDArray view of each tensor.

    A view is a separate NDArray over its part of the memory, not an MXNet slice, because some
    operators refuse slices.
    """

    def __init__(self, layout: Layout):
        super().__init__(layout)
        # MXNet has no zero-length arrays, except in its numpy mode.
        self.views: dict[str, Any] = {
            name: share(tensor) for name, tensor in self.tensors().items() if tensor.size
        }


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
    shape = tuple(parameter.shape)
    if parameter.init is None:
        return draw_by_name(parameter.name, name, shape, seed, index)
    key, settings = _parse(parameter.init)
    if type(parameter.init) in (str, *_STANDARD) and key in RULES:
        return RULES[key](stream(seed, index), name, shape, **settings).astype(np.float32)
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
