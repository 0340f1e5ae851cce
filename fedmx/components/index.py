"""The index of all components: their names, texts and settings, as ``fedmx list`` shows them.

It is kept in ``index.json``, so that a command can list names, or refuse a wrong one, without the
import of the components, of numpy and of MXNet. After a change of a component, write it anew::

    python -m fedmx.components.index
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedmx.components.text import unknown

PATH = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Entry:
    """What is known of a component without its import.

    Attributes:
        about: the first paragraph of its documentation.
        settings: a line for each setting: its name, its default and its type.
        schemas: the JSON schema of each setting's value, by name.
        required: the settings that must be given.
        open: whether it takes other settings, too.
    """

    about: str
    settings: tuple[str, ...]
    schemas: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    open: bool = False


Index = Mapping[str, Mapping[str, Entry]]
"""The components by kind and by name; a name that ends with a colon is a family."""


@lru_cache(maxsize=1)
def read_index() -> Index:
    """Return the index that is kept in the file."""
    kinds = json.loads(PATH.read_text(encoding="utf-8"))
    return {
        kind: {name: _entry(one) for name, one in entries.items()}
        for kind, entries in kinds.items()
    }


def index_of_catalogue() -> Index:
    """Return the index of the components themselves, which are imported."""
    from fedmx.components.catalogue import CATALOGUE

    return {
        kind: {name: _index_entry(entry, name.endswith(":")) for name, entry in entries.items()}
        for kind, entries in CATALOGUE.items()
    }


def write_index(path: Path = PATH) -> None:
    """Write the index of the components to a file."""
    kinds = {
        kind: {name: asdict(entry) for name, entry in entries.items()}
        for kind, entries in index_of_catalogue().items()
    }
    path.write_text(json.dumps(kinds, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def unknown_name(noun: str, name: str, names: Mapping[str, Any]) -> str:
    """Return the message about a name that no component has.

    Args:
        noun: the noun for a component of this kind, such as "selector".
        name: the unknown name.
        names: the names of this kind.
    """
    listed = [f"{key}NAME" if key.endswith(":") else key for key in names]
    return f"{unknown(noun, name, listed)}, or your own as package.module:Name"


def _about(entry: Any) -> str:
    """Return the first paragraph of a component's documentation."""
    first = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")
    first = first.replace("``", "`")
    about = first.removeprefix("Return ")
    # Other texts keep their first letter: it may be a formula, and w is not W.
    return first if about == first else about[:1].upper() + about[1:]


def _entry(kept: Mapping[str, Any]) -> Entry:
    """Return an entry as the file keeps it."""
    tuples = {name: tuple(kept[name]) for name in ("settings", "required")}
    return Entry(**{**kept, **tuples})


def _index_entry(component: Any, family: bool) -> Entry:
    """Return the entry of a component; of a family without what follows the colon."""
    from fedmx.components.settings import signature_of

    signature = signature_of(component)
    settings = list(signature.settings.values())[1 if family else 0 :]
    lines = (f"{one}: {one.type}{', must be given' if one.required else ''}" for one in settings)
    return Entry(
        about=_about(component),
        settings=tuple(lines),
        schemas={one.name: one.json_schema() for one in settings},
        required=tuple(one.name for one in settings if one.required),
        open=signature.open,
    )


if __name__ == "__main__":
    write_index()
