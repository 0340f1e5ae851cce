"""Samples, plans and processes for the tests of every engine."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from layers.compute.data.dataset import Samples

ROOT = Path(__file__).resolve().parents[3]


def path(**environment: str) -> dict[str, str]:
    """The environment of a new process that can import the project and these toys.

    MXNet's own variables, which fedmx has set in this process, are not handed on.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("MXNET_")}
    return {**env, "PYTHONPATH": str(ROOT), **environment}


def plan(**changed: Any) -> SimpleNamespace:
    usual = {"epochs": 1, "steps": None, "batch_size": 10, "learning_rate": 0.1, "momentum": 0.0}
    return SimpleNamespace(**{**usual, "weight_decay": 0.0, **changed})


def samples(n: int, shape: tuple[int, ...], classes: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.random((n, *shape), dtype="f"), rng.integers(0, classes, n))
