"""The JSON schema of experiment files, with which editors complete and check what is typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fedmx.components.index import Entry, read_index
from fedmx.components.source import dotted
from fedmx.experiment.key_texts import read_key_texts
from fedmx.experiment.keys import takes_list, takes_null
from fedmx.experiment.model import Experiment
from fedmx.experiment.names import PLACES
from fedmx.experiment.sections import EXECUTORS

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that editors know; later ones differ in what is not needed here."""

_OWN_CODE = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$"}


def experiment_schema() -> Schema:
    """Return the JSON schema of an experiment file.

    It knows all keys, names and settings. What depends on several keys at once is left to fedmx,
    and so are the settings of a user's own code.
    """
    whole = Experiment.model_json_schema(schema_generator=_WithoutDefaults)
    schema = _inlined(whole, whole.get("$defs", {}), ())
    _shorthands(schema)
    return {"$schema": DRAFT, "title": "A fedmx experiment", **schema}


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
    if where in PLACES:
        return _at_component(where)
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    found = {key: value for key, value in schema.items() if key not in ("$defs", "title")}
    if "properties" in found:
        found["properties"] = {
            name: _described(_inlined(one, definitions, (*where, name)), (*where, name))
            for name, one in schema["properties"].items()
        }
    if "anyOf" in found:
        found["anyOf"] = [_inlined(one, definitions, where) for one in schema["anyOf"]]
    return _draft_07(found)


def _described(schema: Schema, where: tuple[str, ...]) -> Schema:
    """Return the schema of a key with the key's text and default."""
    row = read_key_texts().get(dotted(where))
    if row is None:
        return schema
    texts = [row.meaning, f"Default: {row.default}" if row.default else ""]
    text = ". ".join(one for one in texts if one) or schema.get("description", "")
    return {**schema, "description": text[:1].upper() + text[1:]} if text else schema


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
    kind, _ = PLACES[where]
    component = _component(read_index()[kind])
    if takes_list(Experiment, where):
        return {"type": "array", "items": component}
    if takes_null(Experiment, where):
        return {"anyOf": [*component["anyOf"], {"type": "null"}]}
    return component


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
        name: {**_draft_07(dict(schema)), "description": lines.get(name, "")}
        for name, schema in entry.schemas.items()
    }


def _shorthands(schema: Schema) -> None:
    """Add the short forms that a section's own reader expands."""
    top = schema["properties"]
    top["executor"] = _or(top["executor"], {"enum": list(EXECUTORS)})
    checkpoint = top["run"]["properties"]["checkpoint"]["properties"]
    keep = checkpoint["keep"]
    checkpoint["keep"] = _or(keep, keep["properties"]["last"])


def _or(section: Schema, short: Schema) -> Schema:
    """Return the schema of a key that takes a section or a short form of it."""
    return {"description": section.get("description", ""), "anyOf": [short, section]}
