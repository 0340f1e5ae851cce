"""``fedmx explain``: what a name stands for: its equation, its settings, and what it is made of."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedmx.components.settings import Setting
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


def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As an experiment file has it.")],
) -> None:
    """Say what a name of an experiment file stands for."""
    for line in explanation(name):
        typer.echo(line)


def explanation(name: str) -> list[str]:
    """Return the lines about every component with this name.

    Raises:
        FedmxError: there is none.
    """
    from fedmx.components.catalogue import CATALOGUE
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError

    lines: list[str] = []
    parts: list[object] = []  # of the preset: their text is there once
    for kind, entries in CATALOGUE.items():
        known = _key(name, entries)
        entry = entries.get(known)
        if entry is None or entry in parts:
            continue
        lines += ["", ""] if lines else []
        lines += [f"{name}: {NOUNS[kind]}", ""]
        preset = _made(entry) if kind == "presets" else None
        if preset is not None:
            lines += [*_preset(entry), "", *_taken_apart(entry, preset)]
            parts = [type(part) for _, part in _parts(preset)]
            continue
        lines += _documented(entry, known.endswith(":"))
        if kind == "hooks":
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


def _preset(entry: Callable[..., Preset]) -> Iterator[str]:
    """Yield the text on a preset, and the settings that it has besides those of its parts."""
    from fedmx.components.settings import signature_of

    own = signature_of(inspect.unwrap(entry)).settings
    text, about = _split(entry)
    yield from text.splitlines()
    yield ""
    yield "settings, besides those of its parts below:" if own else "settings: those of its parts"
    for setting in own.values():
        yield from _setting(setting, str(setting), about)


def _taken_apart(entry: Callable[..., Preset], preset: Preset) -> Iterator[str]:
    """Yield what a preset is made of, and how an experiment file spells that out."""
    import yaml

    fixed: Mapping[str, str] = getattr(entry, "fixed", {})
    yield "Made of:"
    for kind, part in _parts(preset):
        yield ""
        yield f"{NOUNS[kind]} {_name(kind, part)}"
        for line in _documented(type(part), family=False, part=part, fixed=fixed):
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


def _documented(
    entry: Any, family: bool, part: object = None, fixed: Mapping[str, str] | None = None
) -> list[str]:
    """Return the text on a component, and its settings.

    Args:
        entry: the class or function.
        family: whether its first setting is the end of its name, and is left out.
        part: the object whose values are shown; None: the defaults.
        fixed: settings that the preset of this part does not take, each with the reason.
    """
    from fedmx.components.settings import signature_of
    from fedmx.components.text import shown

    text, about = _split(entry)
    if inspect.isclass(entry):
        text = _with_file(entry, text)
    lines = text.splitlines()
    settings = list(signature_of(entry).settings.values())[1 if family else 0 :]
    lines += ["", "settings:"] if settings else []
    for one in settings:
        value = str(one) if part is None else f"{one.name} = {shown(getattr(part, one.name))}"
        lines += _setting(one, value, about)
        if fixed and one.name in fixed:
            lines.append(f"      fixed in the preset: {fixed[one.name]}")
    return lines


def _setting(one: Setting, value: str, about: Mapping[str, list[str]]) -> list[str]:
    """Return the lines about one setting."""
    first = f"  {value}: {one.type}{', must be given' if one.required else ''}"
    return [first, *(f"      {said}" for said in about.get(one.name, ()))]


def _with_file(entry: type, text: str) -> str:
    """Return a class' text within that of its file, which opens with the source of the idea."""
    module = inspect.getdoc(sys.modules[entry.__module__]) or ""
    opening, _, more = module.replace("``", "`").partition("\n\n")
    return "\n\n".join(part for part in (opening, text, more) if part)


def _split(entry: Any) -> tuple[str, dict[str, list[str]]]:
    """Return the text of a component's docstring, and its lines about each setting."""
    from layers.logic.core.docstrings import split_docstring

    text, about = split_docstring((inspect.getdoc(entry) or "").replace("``", "`"))
    said = text.removeprefix("Return ")  # else it may begin with a formula: w is not W
    return text if said == text else said[:1].upper() + said[1:], about
