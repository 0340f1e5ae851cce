"""The writer of an experiment: as a mapping, as YAML that reads back equal, and as a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import yaml
from pydantic import BaseModel

from fedmx.components.component import Component
from fedmx.experiment.reader import Dumper

NOT_IN_DIGEST = ("name", "executor", "network", "run")
"""The keys that do not decide the result."""

# With these values a digest is that of before there were these keys.
_LATER_KEYS: dict[str, dict[str, Any]] = {
    "compute": {"start": None, "bits": "native"},
    "logic": {"max_update": 1000.0},
}


def tree_of(section: BaseModel, spell: Callable[[Component], Any]) -> dict[str, Any]:
    """Return a section as a plain mapping.

    Args:
        section: the section, or the whole experiment.
        spell: what to write for a component.
    """

    def spelled(value: Any) -> Any:
        if isinstance(value, BaseModel):
            return tree_of(value, spell)
        if isinstance(value, Component):
            return spell(value)
        if isinstance(value, tuple):
            return [spelled(item) for item in value]
        return str(value) if isinstance(value, PurePath) else value

    return {name: spelled(getattr(section, name)) for name in type(section).model_fields}


def components_of(section: BaseModel) -> Iterator[Component]:
    """Yield the components of a section, in the order of the file."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                yield from components_of(item)
            elif isinstance(item, Component):
                yield item


def to_yaml(experiment: BaseModel) -> str:
    """Return the whole experiment as YAML, defaults included.

    If a file cannot hold some component, the text says ``portable: false``.
    """
    tree = tree_of(experiment, Component.reference)
    if not all(component.portable for component in components_of(experiment)):
        tree["portable"] = False
    text = yaml.dump(
        tree,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return str(text)


def digest(experiment: BaseModel) -> str:
    """Return the SHA-256 (hex) of all keys but name, executor, network and run."""
    tree = tree_of(experiment, Component.reference)
    for key in NOT_IN_DIGEST:
        del tree[key]
    for section, keys in _LATER_KEYS.items():
        for key, default in keys.items():
            if tree[section].get(key, default) == default:
                tree[section].pop(key, None)
    if not tree["without"]:  # as before there was this key
        del tree["without"]
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(b"fedmx experiment 1\n" + text.encode("ascii")).hexdigest()
