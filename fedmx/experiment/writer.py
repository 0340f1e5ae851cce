"""Writes an experiment out whole, as YAML that reads back to the same experiment."""

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

_NOT_OF_THE_RESULT = ("name", "executor", "network", "run")


def tree_of(section: BaseModel, spell: Callable[[Component], Any]) -> dict[str, Any]:
    """The plain mapping that a section holds; ``spell`` says what stands for a component."""

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
    """Every component that a section names, in the order of the file."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                yield from components_of(item)
            elif isinstance(item, Component):
                yield item


def to_yaml(experiment: BaseModel) -> str:
    """The whole experiment, defaults included; says ``portable: false`` where objects are lost."""
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
    """SHA-256 (hex) of what determines the result: all but the name, executor, network
    and run."""
    tree = tree_of(experiment, Component.reference)
    for key in _NOT_OF_THE_RESULT:
        del tree[key]
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(b"fedmx experiment 1\n" + text.encode("ascii")).hexdigest()
