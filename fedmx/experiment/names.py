"""The first check of an experiment file: are the components that it names there?

It reads the index of the components, and imports neither pydantic's models nor numpy. So a typo in
a name is shown at once. What it cannot judge, it leaves to `Experiment.read`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmx.components.catalogue import KINDS, read_catalogue, unknown_name
from fedmx.components.component import OVERRIDDEN, Source
from fedmx.components.text import Where
from fedmx.errors import ExperimentError
from fedmx.experiment.reader import parse_text, parse_value, read_text

PLACES: Mapping[tuple[str, ...], tuple[str, str]] = {
    kind.place: (kind.plural, noun) for noun, kind in KINDS.items()
}
"""Where an experiment names components, each with its kind in the index and its noun."""


def check_names(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> None:
    """Check that the components which an experiment file names are known.

    Args:
        path: the file.
        overrides: ``PATH=VALUE`` texts, as after ``--set``.

    Raises:
        ExperimentError: the file cannot be read, is not YAML, or names an unknown component.
    """
    check_names_in(read_text(path), str(path), overrides)


def check_names_in(text: str, name: str, overrides: Sequence[str] = ()) -> None:
    """Check the components that a text names; `name` is what messages call it.

    Raises:
        ExperimentError: it is not YAML, or names an unknown component.
    """
    tree, source = _overridden(text, name, overrides)
    problems = [
        source.problem(where, unknown_name(noun, given, names))
        for where, given, noun, names in names_in(tree)
        if not _is_known(given, names)
    ]
    if problems:
        raise ExperimentError.of(source.name, problems)


def read_tree(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> tuple[Any, Source]:
    """Return the values of an experiment file, with the overrides in it as far as they fit.

    Raises:
        ExperimentError: the file cannot be read, or is not YAML.
    """
    return _overridden(read_text(path), str(path), overrides)


def names_in(tree: Any) -> Iterator[tuple[Where, str, str, Mapping[str, Any]]]:
    """Yield each component's place and name, with the noun and the known names of its kind."""
    for place, (kind, noun) in PLACES.items():
        value = tree
        for key in place:
            value = value.get(key) if isinstance(value, dict) else None
        several = isinstance(value, list)
        for index, one in enumerate(value if several else [value]):
            name = one.get("name") if isinstance(one, dict) else one
            if isinstance(name, str):
                where: Where = (*place, index) if several else place
                yield where, name, noun, read_catalogue()[kind]


def _is_known(name: str, names: Mapping[str, Any]) -> bool:
    """Return whether a name is known, or may be a user's own code or not a name at all."""
    return name in names or ":" in name or name.startswith("<") or name != name.strip() or not name


def _overridden(text: str, name: str, overrides: Sequence[str]) -> tuple[Any, Source]:
    tree, source = parse_text(text, name)
    lines = dict(source.lines)
    for override in overrides:
        place, _, value = override.partition("=")
        where = tuple(place.strip().split("."))
        try:
            tree = _put(tree, where, parse_value(value, ""))
        except (ExperimentError, LookupError, TypeError, ValueError):
            continue  # a wrong override; `Experiment.read` says why
        lines = {one: line for one, line in lines.items() if one[: len(where)] != where}
        lines[where] = OVERRIDDEN
    return tree, replace(source, lines=lines)


def _put(node: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of a value with another one put in at a path.

    Raises:
        LookupError, TypeError, ValueError: there is no such path.
    """
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(node, list):
        index = int(step)
        inside = node[index] if index < len(node) else None
        return [*node[:index], _put(inside, rest, value), *node[index + 1 :]]
    mapping = {"name": node} if isinstance(node, str) else node or {}
    return {**mapping, step: _put(mapping.get(step), rest, value)}
