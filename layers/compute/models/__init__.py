"""Models by name; MXNet is imported when one is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from layers.compute.errors import ComputeError
from layers.compute.models.cnn3 import cnn3
from layers.compute.models.lenet5 import lenet5
from layers.compute.models.two_nn import two_nn
from layers.compute.models.zoo import ZOOS
from layers.compute.unknown import unknown

MODELS: dict[str, Callable[..., Any]] = {"2nn": two_nn, "lenet5": lenet5, "cnn3": cnn3}


def build_model(name: str, **settings: Any) -> Callable[[], Any]:
    """Return what builds a model: a name in `MODELS`, `gluon:NAME` or `gluoncv:NAME`.

    Raises:
        ComputeError: there is no such model. A name that a zoo does not have is refused when the
            model is built.
    """
    zoo, colon, member = name.partition(":")
    if colon and zoo in ZOOS:
        return partial(ZOOS[zoo], member, **settings)
    if name in MODELS:
        return partial(MODELS[name], **settings)
    names = [*MODELS, *(f"{zoo}:NAME" for zoo in ZOOS)]
    raise ComputeError(unknown("model", name, names))
