"""The settings in which two experiments differ, of those that decide the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fedmx.components.component import Component
from fedmx.experiment import Experiment
from fedmx.experiment.model import NOT_IN_DIGEST, tree_of

ABSENT = "not given"


def other_settings(one: Experiment, other: Experiment) -> list[str]:
    """Return the settings that differ, each as ``logic.hooks.0.mu: 0.1 against 0.2``."""
    mine, theirs = dict(_flat(_deciding(one), "")), dict(_flat(_deciding(other), ""))
    return [
        f"{path}: {mine.get(path, ABSENT)} against {theirs.get(path, ABSENT)}"
        for path in dict.fromkeys((*mine, *theirs))
        if mine.get(path, ABSENT) != theirs.get(path, ABSENT)
    ]


def _deciding(experiment: Experiment) -> dict[str, Any]:
    tree = tree_of(experiment, _spelled)
    return {key: value for key, value in tree.items() if key not in NOT_IN_DIGEST}


def _spelled(component: Component) -> dict[str, Any]:
    return {"name": component.name, **component.settings}


def _flat(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a tree with their paths, as texts."""
    inner: Mapping[Any, Any] = {}
    if isinstance(tree, Mapping):
        inner = tree
    elif isinstance(tree, list):
        inner = dict(enumerate(tree))
    if not inner:
        yield path, json.dumps(tree, default=str)
    for key, value in inner.items():
        yield from _flat(value, f"{path}.{key}" if path else str(key))
