"""Overrides of single values in an experiment: ``--set logic.selector.fraction=0.2``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from fedmx.components.component import OPTIONS, OVERRIDDEN, VARIED, Component, Source
from fedmx.components.section import Section
from fedmx.components.text import Where, dotted, shown
from fedmx.errors import ExperimentError
from fedmx.experiment.keys import keys_in, unknown_key
from fedmx.experiment.reader import parse_value

_MAX_DEPTH = 16


def apply_overrides(
    tree: Mapping[str, Any],
    overrides: Sequence[str],
    schema: type[Section],
    source: Source | None = None,
    varied: Sequence[str] = (),
) -> tuple[dict[str, Any], Source, list[str]]:
    """Return a copy of an experiment's mapping with the overrides, its new source, and problems.

    An override of another form, or of a place that does not exist, is a problem and is left out.

    A component that is written as a name becomes a mapping when one of its settings is set. The
    index after a list's last one appends an item.

    Args:
        tree: the mapping.
        overrides: ``PATH=VALUE`` texts; VALUE is YAML: ``0.2``, ``[1, 2]``, ``{name: shards}``.
        schema: the schema of the whole experiment.
        source: the mapping's source; None for one made in Python.
        varied: further overrides, which ``--vary`` gave.

    Raises:
        ExperimentError: the overrides are not a list of texts.
    """
    source = source or Source()
    changed, lines = dict(tree), dict(source.lines)
    problems: list[str] = []
    given = [(OVERRIDDEN, one) for one in _texts(overrides)] + [(VARIED, one) for one in varied]
    for number, override in given:
        try:
            place, changed = _applied(changed, override, schema, OPTIONS[number])
        except ExperimentError as error:
            problems += error.problems
            continue
        for inside in [one for one in lines if one[: len(place)] == place]:
            del lines[inside]
        lines[place] = number
    return changed, replace(source, lines=lines), problems


def _applied(
    tree: Mapping[str, Any], override: str, schema: type[Section], option: str
) -> tuple[Where, dict[str, Any]]:
    """Return the place that an override of an option sets, and a copy of the mapping with it.

    Raises:
        ExperimentError: it has another form, or there is no such place.
    """
    path, equals, text = override.partition("=")
    where = tuple(path.strip().split("."))
    if not equals or not all(where) or len(where) > _MAX_DEPTH:
        raise ExperimentError(
            f"{option} {shown(override)}: must be PATH=VALUE, as logic.selector.fraction=0.2"
        )
    value = parse_value(text, f"{option} {dotted(where)}")
    return _Override(where, value, schema, option).put(tree, (), schema)


def _texts(overrides: object) -> Iterator[str]:
    """Yield the overrides; a text is a sequence of texts, too, and is refused."""
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        raise ExperimentError(
            "overrides: must be a list of PATH=VALUE texts, as ['rounds=3'], "
            f"not {shown(overrides)}"
        )
    for override in overrides:
        if not isinstance(override, str):
            raise ExperimentError(
                f"overrides: must be a list of PATH=VALUE texts, and holds {shown(override)}"
            )
        yield override


class _Override:
    """Puts one value into a mapping, which is copied along the path only."""

    def __init__(self, path: tuple[str, ...], value: Any, root: type[Section], option: str) -> None:
        self.path, self.value, self.root, self._option = path, value, root, option

    def put(self, node: Any, above: Where, section: type[Section] | None) -> tuple[Where, Any]:
        """Return the place that was set, and a copy of `node` with the value in it.

        Args:
            node: the current value at `above`.
            above: the part of the path that leads to it.
            section: the section that it is; None inside a component or a list.
        """
        if len(above) == len(self.path):
            return above, self.value
        if isinstance(node, list | tuple):
            index = self._index(node, above)
            inside = node[index] if index < len(node) else None
            place, item = self.put(inside, (*above, index), None)
            return place, [*node[:index], item, *node[index + 1 :]]
        step = self.path[len(above)]
        here = (*above, step)
        mapping = self._mapping(node, above, section)
        inside, inner = mapping.get(step), None
        if section is not None:
            inside, inner = self._key(mapping, here, section)
        elif inside is None and len(here) < len(self.path):
            inside = {}
        place, item = self.put(inside, here, inner)
        return place, {**mapping, step: item}

    def _key(
        self, mapping: Mapping[str, Any], here: Where, section: type[Section]
    ) -> tuple[Any, type[Section] | None]:
        """Return the value at a key of a section, or its default, and the section below it."""
        keys = keys_in(section)
        if here[-1] not in keys:
            self._refuse(here, unknown_key(here, section, self.root))
        key = keys[str(here[-1])]
        inside = mapping.get(key.name)
        if inside is None and key.takes_component:
            default = key.field.get_default()
            inside = default.reference() if isinstance(default, Component) else default
        if len(here) < len(self.path) and key.section is None:
            if key.takes_component and inside is None and self.path[len(here) :] == ("name",):
                inside = {}
            elif key.takes_component and inside is None:
                self._refuse(self.path, f"no component is named yet; set {dotted(here)}=NAME first")
            elif key.takes_mapping:
                inside = inside or {}
            elif not key.takes_component and not isinstance(inside, list | tuple):
                self._refuse(self.path, f"{dotted(here)} is a single value and has no keys")
        return inside, key.section

    def _mapping(self, node: Any, where: Where, section: type[Section] | None) -> Mapping[str, Any]:
        """Return ``node`` as a mapping; a component's name is written out."""
        if isinstance(node, Section):
            return {name: getattr(node, name) for name in type(node).model_fields}
        if isinstance(node, Component):
            node = node.object or node.reference()
        if isinstance(node, str) and section is None:
            return {"name": node}
        if node is None and section is not None:
            return {}
        if isinstance(node, Mapping):
            return node
        self._refuse(self.path, f"{dotted(where)} is {shown(node)}, which has no keys to set")

    def _index(self, items: Sequence[Any], above: Where) -> int:
        """Return the index that the path gives for a list."""
        step = self.path[len(above)]
        if step.isascii() and step.isdigit() and len(step) < 6 and int(step) <= len(items):
            return int(step)
        have = f"items 0 to {len(items) - 1}" if items else "no items"
        self._refuse(self.path, f"{dotted(above)} has {have}; {len(items)} appends one")

    def _refuse(self, where: Where, text: str) -> NoReturn:
        raise ExperimentError(f"{self._option} {dotted(where)}: {text}")
