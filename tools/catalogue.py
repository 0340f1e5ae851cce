"""``fedmx/components/catalogue.json`` and ``fedmx/parts.pyi``, from the components themselves."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, replace
from typing import Any

from fedmx.components.catalogue import Catalogue, Entry, components
from fedmx.components.engines import ENGINES, models_of
from fedmx.components.settings import signature_of


def catalogue_of_components() -> Catalogue:
    """Return the catalogue as the components themselves say it."""
    described = {
        kind: {name: _described(one, name.endswith(":")) for name, one in named.items()}
        for kind, named in components().items()
    }
    described["models"] = {
        name: replace(entry, engines=tuple(one for one in ENGINES if name in models_of(one)))
        for name, entry in described["models"].items()
    }
    return described


def text() -> str:
    """Return the text of the file, with one line for each component."""
    kinds = []
    for kind, entries in catalogue_of_components().items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(_kept(entry), ensure_ascii=False)}"
            for name, entry in entries.items()
        ]
        kinds.append(f" {json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def stub_of_components() -> str:
    """Return the text of ``fedmx/parts.pyi``: where each component's class or function is."""
    places = sorted(
        {
            (one.__module__, one.__name__)
            for named in components().values()
            for one in named.values()
        }
    )
    lines = (f"from {module} import {name} as {name}" for module, name in places)
    about = '"""The built-in parts with their modules, written by `make generate`."""'
    return "\n".join([about, "", *lines, ""])


def _kept(entry: Entry) -> dict[str, Any]:
    """Return an entry in its form in the file, without the parts and engines that it has not."""
    kept = asdict(entry)
    return {key: one for key, one in kept.items() if key not in ("parts", "engines") or one}


def _described(component: Any, family: bool) -> Entry:
    """Return the entry of a component; of a family without the setting that the name gives."""
    signature = signature_of(component)
    settings = list(signature.settings.values())[1 if family else 0 :]
    lines = (f"{one}: {one.type}{', must be given' if one.required else ''}" for one in settings)
    return Entry(
        about=_about(component),
        settings=tuple(lines),
        schemas={one.name: one.json_schema() for one in settings},
        required=tuple(one.name for one in settings if one.required),
        open=signature.open,
        parts={one.name: one.part for one in settings if one.part is not None},
    )


def _about(component: Any) -> str:
    """Return the first paragraph of a component's documentation."""
    first = (inspect.getdoc(component) or "").split("\n\n")[0].replace("\n", " ")
    first = first.replace("``", "`")
    about = first.removeprefix("Return ")
    # Other texts keep their first letter: it may be a formula, and w is not W.
    return first if about == first else about[:1].upper() + about[1:]
