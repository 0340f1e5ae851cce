"""The settings of experiments as flat lists, and as a table for several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmx.errors import ExperimentError
from fedmx.experiment.reader import parse_text

ABSENT = "–"


def read_settings(experiment_yaml: str) -> dict[str, Any]:
    """Return the value at each dotted path, in the order of the file.

    The name of a component is at the component's own path: ``{partition: {name: shards,
    per_client: 2}}`` gives ``partition: shards`` and ``partition.per_client: 2``. A text that is
    not an experiment gives an empty mapping.
    """
    try:
        tree, _ = parse_text(experiment_yaml, "experiment.yaml")
    except ExperimentError:
        return {}
    settings: dict[str, Any] = {}
    _flatten("", tree, settings)
    return settings


def as_text(value: object) -> str:
    """Return a value as an experiment file spells it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def table_of(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each path that some run has, with its text in every run (`ABSENT` if it has none)."""
    paths = dict.fromkeys(path for settings in runs for path in settings)
    return [
        (path, [as_text(settings[path]) if path in settings else ABSENT for settings in runs])
        for path in paths
    ]


def _flatten(path: str, value: object, settings: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        if path and "name" in value:
            settings[path] = value["name"]
            value = {key: item for key, item in value.items() if key != "name"}
        for key, item in value.items():
            _flatten(f"{path}.{key}" if path else str(key), item, settings)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            _flatten(f"{path}.{index}", item, settings)
    elif isinstance(value, dict | list):
        settings[path] = ", ".join(as_text(item) for item in value) or "none"
    else:
        settings[path] = value
