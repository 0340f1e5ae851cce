"""The catalogue: every preset and every part of one by its name in an experiment file.

A part has its name in its class (`name`), a preset in its function. No other list names them; no
algorithm is written here.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.attack import Attack
from layers.logic.core.hook import Hook
from layers.logic.core.preset import Preset, is_preset
from layers.logic.core.privacy import Privacy
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import LocalSgd, Trainer

PACKAGES = ("aggregators", "algorithms", "attacks", "catalogue", "hooks", "privacy", "selectors")
"""The packages of the logic layer whose modules define parts and presets."""


def _defined() -> list[Any]:
    """Return all classes and functions that the modules of these packages define."""
    layer, folder = __name__.rpartition(".")[0], Path(__file__).parents[1]
    modules = [
        import_module(f"{layer}.{package}.{module.name}")
        for package in PACKAGES
        for module in pkgutil.iter_modules([str(folder / package)])
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__
    ]


def _named(kind: type) -> dict[str, Any]:
    """Return the classes of a kind that have a name of their own, by that name."""
    parts = [one for one in _DEFINED if isinstance(one, type) and issubclass(one, kind)]
    return dict(sorted((vars(one)["name"], one) for one in parts if "name" in vars(one)))


_DEFINED = _defined()

ATTACKS: dict[str, type[Attack]] = _named(Attack)
HOOKS: dict[str, type[Hook]] = {
    name: one for name, one in _named(Hook).items() if not issubclass(one, Attack)
}
PRIVACY: dict[str, type[Privacy]] = _named(Privacy)
SELECTORS: dict[str, type[Selector]] = _named(Selector)
AGGREGATORS: dict[str, type[Aggregator]] = _named(Aggregator)
TRAINERS: dict[str, type[Trainer]] = {LocalSgd.name: LocalSgd, **_named(Trainer)}
PRESETS: dict[str, Callable[..., Preset]] = dict(
    sorted((one.__name__.replace("_", "-"), one) for one in _DEFINED if is_preset(one))
)
