"""What each key of an experiment file means, as docs/experiment-file.md says it.

It is kept in ``key_texts.json``, so that ``fedmx explain KEY`` and ``fedmx schema`` know it where
the documentation is not installed. After a change of the page, write it anew::

    python -m fedmx.experiment.schema
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fedmx.components.catalogue import Entry, read_catalogue
from fedmx.components.component import dotted
from fedmx.experiment.keys import takes_list, takes_null
from fedmx.experiment.model import Experiment
from fedmx.experiment.names import PLACES
from fedmx.experiment.sections import EXECUTORS

_KINDS = {".".join(place): kind for place, (kind, _) in PLACES.items()}
PATH = Path(__file__).with_name("key_texts.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiment-file.md"


@dataclass(frozen=True)
class KeyText:
    """The row of a key in the page's tables.

    Attributes:
        type: what its value may be.
        default: its value where it is left out; empty for a section.
        meaning: what it is for; may be empty.
    """

    type: str
    default: str
    meaning: str


@lru_cache(maxsize=1)
def read_key_texts() -> Mapping[str, KeyText]:
    """Return the rows that are kept in the file, by dotted key, in the order of the page."""
    rows = json.loads(PATH.read_text(encoding="utf-8"))
    return {key: KeyText(**row) for key, row in rows.items()}


def explained_key(name: str) -> list[str]:
    """Return the lines about a key, a section, or a setting of a component; none for other names.

    Args:
        name: a dotted key, such as ``compute.train.epochs`` or ``logic.hooks.0.mu``, or its last
            part, for all keys that end so.
    """
    texts = read_key_texts()
    key = ".".join(part for part in name.split(".") if not part.isdigit())
    if key in texts:
        return _key_lines(key, texts[key])
    place, _, setting = key.rpartition(".")
    if place in _KINDS:
        return _setting_lines(name, _KINDS[place], setting)
    alike = [other for other in texts if "." not in key and other.rpartition(".")[2] == key]
    pages = [_key_lines(other, texts[other]) for other in alike]
    return [line for page in pages for line in (["", ""] if page is not pages[0] else []) + page]


def key_texts_of(page: str) -> dict[str, KeyText]:
    """Return the rows of all tables of keys in a page (Markdown), without markup."""
    texts = {}
    in_table = False
    for line in page.splitlines():
        cells = [_plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == ["key", "type", "default", "meaning"]:
            in_table = True
        elif not line.startswith("|"):
            in_table = False
        elif in_table and not set(line) <= set("|-: "):
            texts[cells[0]] = KeyText(*cells[1:])
    return texts


def write_key_texts(path: Path = PATH) -> None:
    """Write the rows of the page to a file."""
    rows = {key: asdict(row) for key, row in key_texts_of(PAGE.read_text("utf-8")).items()}
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _key_lines(key: str, text: KeyText) -> list[str]:
    """Return the lines about a key or a section."""
    below = {one: row for one, row in read_key_texts().items() if one.startswith(f"{key}.")}
    lines = [f"{key}: {'section' if below else 'key'}"]
    lines += ["", text.meaning[:1].upper() + text.meaning[1:]] if text.meaning else []
    lines += ["", f"type: {text.type}"]
    lines += [f"default: {text.default}"] if text.default else []
    if key in _KINDS:
        kind = _KINDS[key]
        lines += [
            "",
            f"names: {', '.join(read_catalogue()[kind])}, or your own as package.module:Name",
        ]
        lines += [f"fedmx list {kind} shows their settings, fedmx explain NAME what one does."]
    for one, row in below.items():
        default = "" if row.default in ("", "must be given") else f" (default: {row.default})"
        must = ", must be given" if row.default == "must be given" else ""
        lines += ["", f"{one}: {row.type}{must}{default}"]
        lines += [f"    {row.meaning}"] if row.meaning else []
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


def _plain(cell: str) -> str:
    """Return a cell without its code spans' marks, and links as their text alone."""
    text = re.sub(r" *\(\[more\]\([^)]*\)\)", "", cell.strip())
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return text.replace("`", "").replace("\\|", "|")


if __name__ == "__main__":
    write_key_texts()


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
    component = _component(read_catalogue()[kind])
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
