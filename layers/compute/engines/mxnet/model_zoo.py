"""Untrained models of Gluon's and GluonCV's model zoos, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layers.compute.errors import ComputeError, unknown


def gluon(name: str, **settings: Any) -> Any:
    """Return a model of `mxnet.gluon.model_zoo.vision`, such as `resnet18_v1`."""
    from mxnet.gluon.model_zoo import vision

    return _get("gluon", vision.get_model, name, settings)


def gluoncv(name: str, **settings: Any) -> Any:
    """Return a model of `gluoncv.model_zoo`, such as `cifar_resnet20_v1`."""
    try:
        from gluoncv.model_zoo import get_model
    except ImportError as error:
        raise ComputeError(
            f"model gluoncv:{name} needs gluoncv, which cannot be imported ({error}): install it"
        ) from error
    return _get("gluoncv", get_model, name, settings)


# A client may get the experiment from a server, which must not make it read or download files.
FORBIDDEN = frozenset({"pretrained", "pretrained_base", "root", "ctx"})


def _get(zoo: str, get_model: Callable[..., Any], name: str, settings: dict[str, Any]) -> Any:
    if forbidden := sorted(FORBIDDEN & settings.keys()):
        raise ComputeError(
            f"model {zoo}:{name}: {', '.join(forbidden)} cannot be set; models start untrained"
        )
    try:
        return get_model(name, pretrained=False, **settings)
    except ValueError as error:
        # For an unknown name, both zoos list their names, one on each line.
        known = [line.strip() for line in str(error).splitlines()[1:]]
        if name.lower() in known or not known:
            raise ComputeError(f"model {zoo}:{name} cannot be built: {error}") from error
        raise ComputeError(unknown(f"model of the {zoo} zoo", name, known)) from error
    except (TypeError, AssertionError) as error:
        raise ComputeError(f"model {zoo}:{name} cannot be built: {error}") from error


ZOOS: dict[str, Callable[..., Any]] = {"gluon": gluon, "gluoncv": gluoncv}
