"""Initial values of parameters, drawn by numpy from a seed: equal in every process and engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def stream(seed: int, index: int) -> np.random.Generator:
    """Return the random stream of the `index`-th parameter, which does not depend on others."""
    return np.random.default_rng([seed, index])


def draw_by_name(kind: str, name: str, shape: tuple[int, ...], seed: int, index: int) -> np.ndarray:
    """Return the initial value, float32, of a parameter without an initialiser, as in Gluon.

    Weights are drawn by Xavier (Glorot & Bengio 2010).

    Args:
        kind: what the parameter is called in its layer, or a name that ends in it, as "weight".
        name: the parameter's name for messages.
        shape: its shape.
        seed: the seed of the model.
        index: the number of the parameter in the model.

    Raises:
        ComputeError: no rule fits its name or shape.
    """
    for ending, rule in DEFAULTS:
        if kind.endswith(ending):
            return rule(stream(seed, index), name, shape).astype(np.float32)
    raise ComputeError(
        f"parameter {name} has no initialiser and no usual name: "
        f"give it an initialiser (init=...) in the model"
    )
