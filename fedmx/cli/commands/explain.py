"""``fedmx explain``: what a name stands for: its equation, its settings, and what it is made of."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from layers.logic import Hook, Preset

# How a message and a heading call one of each kind.
NOUNS = {
    "presets": "preset",
    "selectors": "selector",
    "aggregators": "aggregator",
    "hooks": "hook",
    "models": "model",
    "data": "data set",
    "partitions": "partition",
    "schedules": "schedule",
    "devices": "devices",
    "uploads": "way of uploading",
    "availabilities": "availability",
}
SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:")


def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As an experiment file has it.")],
) -> None:
    """Say what a name of an experiment file stands for."""
    for line in explanation(name):
        typer.echo(line)


def explanation(name: str) -> list[str]:
    """Return the lines about everything that bears a name.

    Raises:
        FedmxError: nothing does.
    """
    from fedmx.components.catalogue import CATALOGUE
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError

    lines: list[str] = []
    parts: list[object] = []  # of the preset: what is told there is not told again
    for kind, entries in CATALOGUE.items():
        known = _key(name, entries)
        entry = entries.get(known)
        if entry is None or entry in parts:
            continue
        lines += ["", ""] if lines else []
        family = known.endswith(":")
        lines += [f"{name}: {NOUNS[kind]}", "", *_documented(entry, None, family)]
        if kind == "presets":
            preset = _made(entry)
            if preset is not None:
                lines += ["", *_taken_apart(preset)]
                parts = [type(part) for _, part in _parts(preset)]
        elif kind == "hooks":
            hook = _made(entry)
            lines += ["", *_ends(hook)] if hook is not None else []
    if not lines:
        families = [
            f"{one}NAME" for entries in CATALOGUE.values() for one in entries if one[-1] == ":"
        ]
        plain = [one for entries in CATALOGUE.values() for one in entries if one[-1] != ":"]
        raise FedmxError(unknown("name", name, {*plain, *families}))
    return lines


def by_hand(preset: Preset) -> dict[str, Any]:
    """Return the logic section of an experiment file that says what a preset stands for."""
    section: dict[str, Any] = {
        "selector": _reference("selectors", preset.selector),
        "aggregator": _reference("aggregators", preset.aggregator),
    }
    if preset.hooks:
        section["hooks"] = [_reference("hooks", hook) for hook in preset.hooks]
    return section


def _key(name: str, entries: Mapping[str, Any]) -> str:
    """Return the entry's key: the name itself, or its family's for ``gluon:resnet18_v1``."""
    zoo = f"{name.partition(':')[0]}:"
    return zoo if ":" in name and zoo in entries else name


def _made(entry: Callable[..., Any]) -> Any:
    """Return what an entry makes by its defaults, or None where some setting must be given."""
    from fedmx.components.settings import signature_of

    required = any(one.required for one in signature_of(entry).settings.values())
    return None if required else entry()


def _parts(preset: Preset) -> list[tuple[str, Any]]:
    hooks = [("hooks", hook) for hook in preset.hooks]
    return [("selectors", preset.selector), ("aggregators", preset.aggregator), *hooks]


def _taken_apart(preset: Preset) -> Iterator[str]:
    """Yield what a preset is made of, and how an experiment file spells that out."""
    import yaml

    yield "Made of:"
    for kind, part in _parts(preset):
        yield ""
        yield f"{NOUNS[kind]} {_name(kind, part)}"
        for line in _documented(type(part), part, family=False):
            yield f"  {line}".rstrip()
        if kind == "hooks":
            yield ""
            for line in _ends(part):
                yield f"  {line}".rstrip()
    yield ""
    yield "In an experiment file, by hand:"
    yield ""
    text = yaml.safe_dump({"logic": by_hand(preset)}, sort_keys=False, width=96)
    yield from (f"  {line}" for line in text.splitlines())


def _name(kind: str, part: object) -> str:
    from fedmx.components.catalogue import CATALOGUE
    from fedmx.components.component import Component

    known = {entry: name for name, entry in CATALOGUE[kind].items()}
    return known.get(type(part)) or Component.of(part).name


def _reference(kind: str, part: Any) -> dict[str, Any]:
    """Return what an experiment file says for a part; what is null by default goes unsaid."""
    from fedmx.components.component import plain

    given = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
    unsaid = {one.name for one in fields(part) if one.default is None}
    settings = {k: plain(v) for k, v in given.items() if v is not None or k not in unsaid}
    return {"name": _name(kind, part), **settings}


def _ends(hook: Hook) -> Iterator[str]:
    """Yield at which of its steps each end does something, and what travels in another form."""
    for end, half in (("server", hook.server()), ("client", hook.client())):
        own, plain = type(half), type(half).__mro__[-2]
        steps = [
            step
            for step in vars(plain)
            if not step.startswith("_") and getattr(own, step) is not getattr(plain, step)
        ]
        yield f"on the {end}: {', '.join(steps) or 'nothing'}"
    if hook.encodes_update:
        yield "the update goes up encoded"
    if hook.encodes_model:
        yield "the model goes down encoded"


def _documented(entry: Any, part: object, family: bool) -> list[str]:
    """Return the text on a component, and its settings as they are in `part` or by default."""
    from fedmx.components.settings import signature_of
    from fedmx.components.text import shown

    text, about = _split(inspect.getdoc(entry) or "")
    if inspect.isclass(entry):
        text = _with_file(entry, text)
    lines = text.splitlines()
    settings = list(signature_of(entry).settings.values())[1 if family else 0 :]
    lines += ["", "settings:"] if settings else []
    for one in settings:
        value = one if part is None else f"{one.name} = {shown(getattr(part, one.name))}"
        lines.append(f"  {value}: {one.type}{', must be given' if one.required else ''}")
        lines += [f"      {said}" for said in about.get(one.name, ())]
    return lines


def _with_file(entry: type, text: str) -> str:
    """Return a class' text within that of its file, which opens with the source of the idea."""
    module = inspect.getdoc(sys.modules[entry.__module__]) or ""
    opening, _, more = module.replace("``", "`").partition("\n\n")
    return "\n\n".join(part for part in (opening, text, more) if part)


def _split(docstring: str) -> tuple[str, dict[str, list[str]]]:
    """Return a docstring's text, and the lines that it has on each argument or attribute."""
    about: dict[str, list[str]] = {}
    kept: list[str] = []
    section = last = ""
    for line in docstring.replace("``", "`").splitlines():
        if line in SECTIONS:
            section = line
        elif line and not line.startswith(" "):
            section = ""
        if not section:
            kept.append(line)
        elif section in SECTIONS[:2]:
            found = re.match(r"    (\w+): (.+)", line)
            if found:
                last = found[1]
                about[last] = [found[2]]
            elif last and line.strip() and line != section:
                about[last].append(line.strip())
    text = "\n".join(kept).strip()
    said = text.removeprefix("Return ")
    return text if said == text else said[:1].upper() + said[1:], about
