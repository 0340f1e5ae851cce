"""The engines that an experiment can choose between; the library of one is imported when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from layers.compute.engines.engine import Engine

EngineName: TypeAlias = Literal["mxnet", "torch", "numpy"]
ENGINES: tuple[str, ...] = get_args(EngineName)

MXNET, TORCH, NUMPY = "mxnet", "torch", "numpy"
CPU = "cpu"
DeviceName: TypeAlias = Literal["cpu", "cuda"]
FLOAT32 = "float32"
PrecisionName: TypeAlias = Literal["float32", "bf16"]

PACKAGES: Mapping[str, tuple[str, ...]] = {
    MXNET: ("mxnet", "numpy"),
    TORCH: ("torch", "numpy"),
    NUMPY: ("numpy",),
}
"""The packages of each engine, whose versions and builds decide the bits of a run."""


MODULES: Mapping[str, tuple[str, ...]] = {
    MXNET: ("layers.compute.engines.mxnet.engine", "layers.compute.engines.mxnet.models"),
    TORCH: ("layers.compute.engines.torch.engine",),
    NUMPY: ("layers.compute.engines.numpy.engine",),
}
"""The modules that import an engine and its library."""


def engine_of(name: str) -> Callable[..., Engine]:
    """Return the class of an engine.

    Raises:
        FedmxError: its library is not installed.
    """
    try:
        if name == MXNET:
            from layers.compute.engines.mxnet.engine import MXNetEngine

            return MXNetEngine
        if name == TORCH:
            from layers.compute.engines.torch.engine import TorchEngine

            return TorchEngine
        from layers.compute.engines.numpy.engine import NumpyEngine
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES[name]:
            raise
        raise FedmxError(not_installed(name)) from error
    return NumpyEngine


def not_installed(engine: str) -> str:
    """Return the text about an engine whose library is missing."""
    from layers.extras import install

    todo = {
        # pip does not install it beside numpy 2, though it works there
        MXNET: "pip install --no-deps mxnet==1.9.1 where it has a wheel (Linux on x86_64), or "
        "compute.engine: numpy",
        TORCH: install("torch"),
    }
    return f"the package {engine} is not installed; {todo[engine]}"


def models_of(name: str) -> Mapping[str, Callable[..., Any]]:
    """Return the models of an engine; a name with a final colon is a family."""
    from layers.compute.engines.architectures import ARCHITECTURES
    from layers.compute.engines.mxnet.model_zoo import ZOOS
    from layers.compute.engines.mxnet.models import MODELS

    if name == MXNET:
        return {**MODELS, **{f"{zoo}:": model for zoo, model in ZOOS.items()}}
    return ARCHITECTURES
