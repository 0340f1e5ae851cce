"""The components of fedmx: their kinds, names, texts and settings.

``catalogue.json`` keeps the names, texts and settings. So a command lists names, or refuses a wrong
one, without the import of numpy or MXNet. ``make generate`` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedmx.components.engines import ENGINES, models_of
from fedmx.components.text import unknown

PATH = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Kind:
    """A kind of component.

    Attributes:
        plural: its name in ``fedmx list`` and in the catalogue.
        place: the key of an experiment that takes one component of this kind, or a list of them.
        own: how an experiment file names a user's own component of this kind.
    """

    plural: str
    place: tuple[str, ...]
    own: str


KINDS: Mapping[str, Kind] = {
    "model": Kind("models", ("compute", "model"), "model: 'my_module:Net'"),
    "data set": Kind("data", ("compute", "data"), "data: 'my_module:load'"),
    "partition": Kind("partitions", ("compute", "partition"), "partition: 'my_module:Split'"),
    "schedule": Kind(
        "schedules", ("compute", "train", "schedule"), "schedule: 'my_module:Schedule'"
    ),
    "optimiser": Kind(
        "optimisers",
        ("compute", "train", "optimiser"),
        "optimiser: {name: 'my_module:Own', beta: 0.9}",
    ),
    "loss": Kind("losses", ("compute", "loss"), "loss: {name: 'my_module:Own', mu: 0.1}"),
    "metric": Kind("metrics", ("compute", "evaluate", "metrics"), "metrics: ['my_module:Recall']"),
    "preset": Kind("presets", ("logic", "preset"), "preset: 'my_module:function'"),
    "selector": Kind(
        "selectors", ("logic", "selector"), "selector: {name: 'my_module:Pick', fraction: 0.5}"
    ),
    "aggregator": Kind("aggregators", ("logic", "aggregator"), "aggregator: 'my_module:Median'"),
    "hook": Kind("hooks", ("logic", "hooks"), "hooks: [{name: 'my_module:Noise', sigma: 0.01}]"),
    "trainer": Kind("trainers", ("logic", "trainer"), "trainer: {name: 'my_module:Own', lam: 0.1}"),
    "attack": Kind("attacks", ("attack",), "attack: {name: 'my_module:Lie', clients: 0.2}"),
    "privacy": Kind("privacy", ("privacy",), "privacy: {name: 'my_module:Own', clip: 0.4}"),
    "devices": Kind("devices", ("clock", "devices"), "devices: 'my_module:Phones'"),
    "uploads": Kind("uploads", ("clock", "uploads"), "uploads: 'my_module:Cell'"),
    "availability": Kind(
        "availabilities", ("clock", "availability"), "availability: 'my_module:Nights'"
    ),
}
"""The kinds by their nouns, which messages use."""

NOUNS: Mapping[tuple[str, ...], str] = {kind.place: noun for noun, kind in KINDS.items()}
"""The noun of the kind that each place of an experiment takes."""


NOUN_OF: Mapping[str, str] = {kind.plural: noun for noun, kind in KINDS.items()}
"""The noun of each kind by its plural."""


@dataclass(frozen=True)
class Entry:
    """What the catalogue says of a component.

    Attributes:
        about: the first paragraph of its documentation.
        settings: a line for each setting: its name, its default and its type.
        schemas: the JSON schema of each setting's value, by name.
        required: the settings that must be given.
        open: whether it takes other settings, too.
        parts: the noun of the kind of part that a setting takes, by the setting's name.
        engines: the engines that have a model.
    """

    about: str
    settings: tuple[str, ...]
    schemas: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    open: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ()


Catalogue = Mapping[str, Mapping[str, Entry]]
"""The entries by the plural of their kind and by name; a name with a final colon is a family."""


@lru_cache(maxsize=1)
def read_catalogue() -> Catalogue:
    """Return the catalogue that the file keeps."""
    kinds = json.loads(PATH.read_text(encoding="utf-8"))
    return {
        kind: {name: _entry(kept) for name, kept in entries.items()}
        for kind, entries in kinds.items()
    }


@lru_cache(maxsize=1)
def components() -> Mapping[str, Mapping[str, Any]]:
    """Return the class or function of each component, by the plural of its kind and by name.

    This imports all layers.
    """
    from layers.compute.data.datasets import DATASETS, FEDERATED
    from layers.compute.data.partitions import PARTITIONS
    from layers.compute.losses import LOSSES
    from layers.compute.metrics import METRICS
    from layers.compute.optimisers import OPTIMISERS
    from layers.compute.schedule import SCHEDULES
    from layers.logic import (
        AGGREGATORS,
        ATTACKS,
        HOOKS,
        PRESETS,
        PRIVACY,
        SELECTORS,
        TRAINERS,
    )
    from layers.logic.clock import AVAILABILITIES, DEVICES, UPLOADS

    return {
        "presets": PRESETS,
        "selectors": SELECTORS,
        "aggregators": AGGREGATORS,
        "hooks": HOOKS,
        "attacks": ATTACKS,
        "privacy": PRIVACY,
        "trainers": TRAINERS,
        "models": {key: one for name in ENGINES for key, one in models_of(name).items()},
        "data": {**DATASETS, **FEDERATED},
        "partitions": PARTITIONS,
        "schedules": SCHEDULES,
        "optimisers": OPTIMISERS,
        "losses": LOSSES,
        "metrics": METRICS,
        "devices": DEVICES,
        "uploads": UPLOADS,
        "availabilities": AVAILABILITIES,
    }


def unknown_name(noun: str, name: str, names: Mapping[str, Any]) -> str:
    """Return the message about a name that no component has.

    Args:
        noun: the noun for a component of this kind, such as "selector".
        name: the unknown name.
        names: the names of this kind.
    """
    if noun == "data set" and name.endswith(".npz"):
        return f"unknown data set {name!r}; a file is {{name: arrays, path: {name}}}"
    if noun == "data set" and name.endswith((".csv", ".parquet")):
        return f"unknown data set {name!r}; a file is {{name: table, path: {name}, target: COLUMN}}"
    listed = [f"{key}NAME" if key.endswith(":") else key for key in names]
    return f"{unknown(noun, name, listed)}, or your own as package.module:Name"


def _entry(kept: Mapping[str, Any]) -> Entry:
    """Return an entry from its form in the file."""
    tuples = {name: tuple(kept.get(name, ())) for name in ("settings", "required", "engines")}
    return Entry(**{**kept, **tuples})
