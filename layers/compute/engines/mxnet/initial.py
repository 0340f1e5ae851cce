"""Initial values of parameters, drawn by numpy from a seed: the same in every process.

MXNet's initialisers draw from a random state that the whole process shares. So the usual ones are
written here again. Any other runs in MXNet with a seed, which changes that shared state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np

from layers.compute.engines.mxnet.seeds import seed_mxnet
from layers.compute.errors import ComputeError

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


def _constant(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], value: float = 0.0
) -> np.ndarray:
    return np.full(shape, value)


def _zeros(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def _ones(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


def _uniform(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], scale: float = 0.07
) -> np.ndarray:
    return rng.uniform(-scale, scale, shape)


def _normal(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], sigma: float = 0.01
) -> np.ndarray:
    return rng.normal(0, sigma, shape)


RULES: dict[str, Rule] = {
    "zero": _zeros,
    "zeros": _zeros,
    "one": _ones,
    "ones": _ones,
    "constant": _constant,
    "uniform": _uniform,
    "normal": _normal,
    "xavier": _xavier,
    "msraprelu": _msra,
}

# The rule for a parameter without an initialiser of its own: by the end of its name, as in Gluon.
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

    Each parameter has a random stream of its own, so that none depends on those before it.

    Raises:
        ComputeError: it has no initialiser, and no rule fits its name or its shape.
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
    except Exception as error:  # the initialiser is named by a text, or is a user's own
        raise ComputeError(
            f"parameter {name} cannot be drawn with the initialiser {parameter.init!r}: {error}"
        ) from error
    finally:
        np.random.set_state(state)
    return np.asarray(value.asnumpy(), np.float32)
