"""What an experiment file may hold: explained in lines, and as JSON schema.

All of it is derived from the sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from fedmx.components.catalogue import KINDS, NOUNS, Entry, read_catalogue
from fedmx.components.text import dotted
from fedmx.experiment.keys import Key, keys_of, plain
from fedmx.experiment.model import Experiment

KEYS: Mapping[str, Key] = {dotted(place): key for place, key in keys_of(Experiment)}
"""The keys by their dotted places, in the order of the schema."""

_KINDS = {dotted(kind.place): kind.plural for kind in KINDS.values()}


def explained_key(name: str) -> list[str]:
    """Return the lines about a key, a section, or a setting of a component; none for other names.

    Args:
        name: a dotted key, such as ``compute.train.epochs`` or ``logic.hooks.0.mu``, or its last
            part, for all keys that end with it.
    """
    key = ".".join(part for part in name.split(".") if not part.isdigit())
    if key in KEYS:
        return _key_lines(key)
    place, _, setting = key.rpartition(".")
    kind = _kind_at(place)
    if kind is not None:
        return _setting_lines(name, kind, setting)
    alike = [other for other in KEYS if "." not in key and other.rpartition(".")[2] == key]
    pages = [_key_lines(other) for other in alike]
    return [line for page in pages for line in (["", ""] if page is not pages[0] else []) + page]


def _kind_at(place: str) -> str | None:
    """Return the plural of the kind of component at a place, also inside of another component."""
    above, _, setting = place.rpartition(".")
    if place in _KINDS or not above:
        return _KINDS.get(place)
    kind = _kind_at(above)
    entries = read_catalogue()[kind].values() if kind is not None else ()
    nouns = [entry.parts[setting] for entry in entries if setting in entry.parts]
    return KINDS[nouns[0]].plural if nouns else None


def _key_lines(name: str) -> list[str]:
    """Return the lines about a key or a section."""
    key = KEYS[name]
    below = {one: row for one, row in KEYS.items() if one.startswith(f"{name}.")}
    lines = [f"{name}: {'section' if below else 'key'}", "", plain(key.text)]
    lines += ["", f"type: {plain(key.takes)}"]
    lines += [f"default: {plain(key.default)}"] if key.default else []
    if name in _KINDS:
        kind = _KINDS[name]
        names = ", ".join(read_catalogue()[kind])
        lines += ["", f"names: {names}, or your own as package.module:Name"]
        lines += [f"fedmx list {kind} shows their settings, fedmx explain NAME what one does."]
    for one, row in below.items():
        default = f" (default: {plain(row.default)})" if row.default else ""
        if row.field.is_required():
            default = f", {row.default}"
        lines += ["", f"{one}: {plain(row.takes)}{default}", f"    {plain(row.text)}"]
    return lines


def _setting_lines(name: str, kind: str, setting: str) -> list[str]:
    """Return the lines about a setting of the components of a kind; none if none has it."""
    found = [
        f"{component}: {line}"
        for component, entry in read_catalogue()[kind].items()
        for line in entry.settings
        if re.match(rf"{re.escape(setting)}(?: =|:)", line)
    ]
    return [f"{name}: setting of these {kind}", "", *found] if found else []


Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that editors know; the changes of later ones are not needed here."""

_OWN_CODE = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"}


def experiment_schema() -> Schema:
    """Return the JSON schema of an experiment file.

    It knows all keys, names and settings. What depends on several keys at once is left to fedmx,
    and so are the settings of a user's own code.
    """
    whole = Experiment.model_json_schema(schema_generator=_WithoutDefaults)
    schema = _inlined(whole, whole.get("$defs", {}), ())
    catalogue = read_catalogue()
    inner = {
        noun: _component(catalogue[KINDS[noun].plural])
        for entries in catalogue.values()
        for entry in entries.values()
        for noun in entry.parts.values()
    }
    return {"$schema": DRAFT, "title": "A fedmx experiment", **schema, "definitions": inner}


class _WithoutDefaults(GenerateJsonSchema):
    """Pydantic's generator; the defaults of sections and components are objects, no JSON."""

    def default_schema(self, schema: Any) -> Schema:
        """Return the schema of a value without its default."""
        return self.generate_inner(schema["schema"])


def _inlined(schema: Schema, definitions: Mapping[str, Schema], where: tuple[str, ...]) -> Schema:
    """Return a schema with the sections in their places, and the text of each key.

    Args:
        schema: the schema of the value at a place.
        definitions: the schemas that references name.
        where: the place.
    """
    if where in NOUNS:
        return _at_component(where)
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    found = {key: value for key, value in schema.items() if key not in ("$defs", "title")}
    if "properties" in found:
        places = {name: (*where, name) for name in schema["properties"]}
        found["properties"] = {
            name: _described(_inlined(one, definitions, places[name]), KEYS[dotted(places[name])])
            for name, one in schema["properties"].items()
        }
    if "anyOf" in found:
        found["anyOf"] = [_inlined(one, definitions, where) for one in schema["anyOf"]]
    return _draft_07(found)


def _described(schema: Schema, key: Key) -> Schema:
    """Return the schema of a key with the key's text, default and short form."""
    text = plain(key.text) + (f" Default: {plain(key.default)}" if key.default else "")
    short = None if key.section is None else key.section.short_form
    if short is not None:
        schema = {"anyOf": [TypeAdapter(short).json_schema(), schema]}
    return {**schema, "description": text}


def _draft_07(schema: Schema) -> Schema:
    """Return a schema with lists of given lengths as draft 7 writes them."""
    if "prefixItems" in schema:
        schema = {**schema, "items": schema["prefixItems"]}
        del schema["prefixItems"]
    if "anyOf" in schema:
        schema = {**schema, "anyOf": [_draft_07(one) for one in schema["anyOf"]]}
    return schema


def _at_component(where: tuple[str, ...]) -> Schema:
    """Return the schema of a key that takes a component, or a list of them."""
    key, name = KEYS[dotted(where)], dotted(where)
    component = _component(read_catalogue()[_KINDS[name]])
    if key.takes_list:
        return {"type": "array", "items": component}
    return {"anyOf": [*component["anyOf"], {"type": "null"}]} if key.takes_null else component


def _component(entries: Mapping[str, Entry]) -> Schema:
    """Return the schema of a component: a name, or a mapping of its name and settings."""
    name = {"anyOf": [*_names(entries), _OWN_CODE]}
    cases = [
        {
            "if": {"properties": {"name": _name(key)}, "required": ["name"]},
            "then": {
                "properties": {"name": {}, **_settings(entry)},
                "required": ["name", *entry.required],
                **({} if entry.open else {"additionalProperties": False}),
            },
        }
        for key, entry in entries.items()
    ]
    mapping = {"type": "object", "required": ["name"], "properties": {"name": name}, "allOf": cases}
    without_settings = {key: one for key, one in entries.items() if not one.required}
    return {"anyOf": [*_names(without_settings), _OWN_CODE, mapping]}


def _names(entries: Mapping[str, Entry]) -> list[Schema]:
    """Return a schema for each name, with its text."""
    return [{**_name(key), "description": entry.about} for key, entry in entries.items()]


def _name(key: str) -> Schema:
    """Return the schema of a name; that of a family ends with a colon."""
    return {"type": "string", "pattern": f"^{key}."} if key.endswith(":") else {"const": key}


def _settings(entry: Entry) -> Schema:
    """Return the schema of each setting of a component, with its line in ``fedmx list``."""
    lines = {line.partition(" =")[0].partition(":")[0]: line for line in entry.settings}
    return {
        name: {**_value(entry, name), "description": lines.get(name, "")} for name in entry.schemas
    }


def _value(entry: Entry, name: str) -> Schema:
    """Return the schema of a setting's value: of a part, a list of parts, or another value."""
    if name not in entry.parts:
        return _draft_07(dict(entry.schemas[name]))
    part = {"$ref": f"#/definitions/{entry.parts[name]}"}
    return {"anyOf": [part, {"type": "array", "items": part}, {"type": "null"}]}
