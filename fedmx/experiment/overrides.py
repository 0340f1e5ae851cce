"""``--set logic.selector.fraction=0.2``: puts single values into an experiment's mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from pydantic import BaseModel

from fedmx.components.component import Component
from fedmx.components.source import OVERRIDDEN, Source, Where, dotted
from fedmx.components.text import shown
from fedmx.errors import ExperimentError
from fedmx.experiment.keys import holds_component, sections_of, unknown_key
from fedmx.experiment.reader import parse_value

_DEPTH_LIMIT = 16


def apply_overrides(
    tree: Mapping[str, Any],
    overrides: Sequence[str],
    schema: type[BaseModel],
    source: Source | None = None,
) -> tuple[dict[str, Any], Source]:
    """A copy of ``tree`` with each ``PATH=VALUE`` put in, and a source that knows it.

    A component that is written as a name becomes a mapping when one of its settings is set. What
    neither ``tree`` nor ``schema`` has is refused (ExperimentError), as is an item further than
    one behind a list's end. VALUE is YAML: ``0.2``, ``[1, 2]``, ``{name: shards}``.
    """
    source = source or Source()
    changed, lines = dict(tree), dict(source.lines)
    for override in overrides:
        path, equals, text = override.partition("=")
        where = tuple(path.strip().split("."))
        if not equals or not all(where) or len(where) > _DEPTH_LIMIT:
            raise ExperimentError(
                f"--set {shown(override)}: must be PATH=VALUE, as logic.selector.fraction=0.2"
            )
        value = parse_value(text, f"--set {dotted(where)}")
        place, changed = _Override(where, value, schema).put(changed, (), schema)
        for known in [known for known in lines if known[: len(place)] == place]:
            del lines[known]
        lines[place] = OVERRIDDEN
    return changed, replace(source, lines=lines)


class _Override:
    """One value on its way down the mapping, which is copied only along the path."""

    def __init__(self, path: tuple[str, ...], value: Any, root: type[BaseModel]) -> None:
        self.path, self.value, self.root = path, value, root

    def put(self, node: Any, above: Where, section: type[BaseModel] | None) -> tuple[Where, Any]:
        """The place that was set, with its indices, and ``node`` with the value in it."""
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
        self, mapping: Mapping[str, Any], here: Where, section: type[BaseModel]
    ) -> tuple[Any, type[BaseModel] | None]:
        """The value at a key of ``section``, or its default, and the section that it opens."""
        key, sections = str(here[-1]), sections_of(section)
        if key not in sections:
            self._refuse(here, unknown_key(here, sections, self.root))
        inside, component = mapping.get(key), holds_component(section, key)
        if inside is None and component:
            default = section.model_fields[key].get_default()
            inside = default.reference() if isinstance(default, Component) else default
        if len(here) < len(self.path) and sections[key] is None:
            if component and inside is None:
                self._refuse(self.path, f"no component is named yet; set {dotted(here)}=NAME first")
            if not component and not isinstance(inside, list | tuple):
                self._refuse(self.path, f"{dotted(here)} is a value and has no keys of its own")
        return inside, sections[key]

    def _mapping(
        self, node: Any, where: Where, section: type[BaseModel] | None
    ) -> Mapping[str, Any]:
        if isinstance(node, BaseModel):
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
        step = self.path[len(above)]
        if step.isascii() and step.isdigit() and len(step) < 6 and int(step) <= len(items):
            return int(step)
        have = f"items 0 to {len(items) - 1}" if items else "no items"
        self._refuse(self.path, f"{dotted(above)} has {have}; {len(items)} adds one")

    def _refuse(self, where: Where, text: str) -> NoReturn:
        raise ExperimentError(f"--set {dotted(where)}: {text}")
