"""``fedmx new``, ``list``, ``schema`` and ``explain``: what an experiment file can say."""

from __future__ import annotations

import difflib
import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.options import AsJson, Overrides, options, place
from fedmx.cli.output import show_text
from fedmx.components.engines import ENGINES
from fedmx.errors import FedmxError
from fedmx.shell_line import shell_line

if TYPE_CHECKING:
    from fedmx.components.catalogue import Entry
    from fedmx.components.component import Component
    from fedmx.components.settings import Setting
    from fedmx.components.user_code import NamedCode
    from fedmx.experiment import Experiment
    from layers.logic import Preset
    from layers.logic.core.declaration import Part


_DATA = ("csv", "images")


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The folder to write.", show_default=False)
    ],
    hook: Annotated[bool, typer.Option("--hook", help="With a hook of your own.")] = False,
    model: Annotated[bool, typer.Option("--model", help="With your own model and arrays.")] = False,
    selector: Annotated[
        bool, typer.Option("--selector", help="With your own selector and devices.")
    ] = False,
    aggregator: Annotated[
        bool, typer.Option("--aggregator", help="With an aggregator of your own.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(metavar="csv|images", help="With data from a CSV file or a folder of images."),
    ] = None,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="A server and two clients over mutual TLS.")
    ] = False,
) -> None:
    """Write a small project: an experiment, its code and tests."""
    if data is not None and data not in _DATA:
        raise FedmxError(f"--data {data}: unknown kind of data; write csv or images")
    flags = {"hook": hook, "model": model, "selector": selector, "aggregator": aggregator}
    chosen = [name for name, is_set in {**flags, "deploy": deploy}.items() if is_set]
    chosen += [] if data is None else [data]
    if len(chosen) != 1:
        raise FedmxError(
            "say what the project is for, with one of --hook, --model, --selector, --aggregator, "
            f"--data csv, --data images, --deploy ({len(chosen)} of them are there)"
        )

    # Not at the top: `fedmx --help` does not wait for these imports.
    from fedmx.new import KINDS, write_project

    (kind,) = chosen
    for name in write_project(folder, kind):
        typer.echo(f"{folder}/{name}")
    go = shell_line("cd", folder)
    install = "" if find_spec("pytest") else "pip install pytest; "
    typer.echo(f"\nRun it:   {go}; {KINDS[kind].command}\nTest it:  {go}; {install}pytest")


def _kinds(incomplete: str) -> list[str]:
    """Return a shell's completions: the matching kinds of components."""
    from fedmx.components.catalogue import read_catalogue

    return [kind for kind in read_catalogue() if kind.startswith(incomplete)]


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="models, data, hooks, ...  [default: all]",
            autocompletion=_kinds,
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="|".join(ENGINES), help="Only the models of this engine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the names for experiment files."""
    from fedmx.components.catalogue import read_catalogue
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError

    index = dict(read_catalogue())
    if engine is not None:
        if engine not in ENGINES:
            raise FedmxError(unknown("engine", engine, list(ENGINES)))
        models = index["models"].items()
        index["models"] = {name: entry for name, entry in models if engine in entry.engines}
    if kind is not None and kind not in index:
        raise FedmxError(unknown("kind", kind, list(index)))
    if as_json:
        kinds = index if kind is None else {kind: index[kind]}
        found = {name: {key: asdict(one) for key, one in kinds[name].items()} for name in kinds}
        typer.echo(json.dumps(found))
        return
    if kind is not None:
        _show_kind(kind, index[kind], settings=True)
        return
    for name, entries in index.items():
        _show_kind(name, entries, settings=False)
        typer.echo()
    typer.echo("with their settings: fedmx list KIND, as in fedmx list hooks")


def schema() -> None:
    """Print the JSON schema of experiment files, for editors."""
    from fedmx.experiment.schema import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1, ensure_ascii=False))


def _show_kind(kind: str, entries: Mapping[str, Entry], *, settings: bool) -> None:
    """Print the components of a kind: names on the left, texts beside them.

    Without `rich`: its import takes longer than the rest of this command.
    """
    from fedmx.components.catalogue import KINDS, NOUN_OF
    from fedmx.components.text import dotted

    of = KINDS[NOUN_OF[kind]]
    typer.echo(f"{typer.style(kind, bold=True)} ({dotted(of.place)})")
    names = {f"{key}NAME" if key.endswith(":") else key: entry for key, entry in entries.items()}
    left = max(map(len, [*names, "your own"])) + 2
    right = max(shutil.get_terminal_size().columns - left, 20)
    for name, entry in names.items():
        _show_row(name, left, textwrap.wrap(entry.about, right))
        for setting in entry.settings if settings else ():
            lines = textwrap.wrap(setting, right, initial_indent="  ", subsequent_indent="    ")
            _show_row("", left, (typer.style(line, dim=True) for line in lines))
    _show_row("your own", left, textwrap.wrap(of.own, right))


def _show_row(name: str, left: int, lines: Iterator[str] | list[str]) -> None:
    for line in lines or [""]:
        typer.echo(f"{name:{left}}{line}".rstrip())
        name = ""


def names_and_keys(incomplete: str) -> list[tuple[str, str]]:
    """Return a shell's completions: the matching names and keys, with their texts."""
    from fedmx.components.catalogue import read_catalogue
    from fedmx.experiment.keys import plain
    from fedmx.experiment.schema import KEYS

    texts = {name: plain(key.text) for name, key in KEYS.items()}
    for entries in read_catalogue().values():
        texts |= {name: entry.about for name, entry in entries.items()}
    return [(one, text) for one, text in sorted(texts.items()) if one.startswith(incomplete)]


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|KEY|FILE",
            help="A name or key of experiment files, or an experiment file.",
            autocompletion=names_and_keys,
        ),
    ],
    set_: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Explain a name or key, or what a file would run and reveal."""
    file = Path(name)
    if file.suffix not in (".yaml", ".yml") and not file.is_file():
        if as_json:
            typer.echo(json.dumps(_document(name)))
        else:
            show_text(explanation(name))
        return
    from fedmx.experiment import Experiment
    from fedmx.privacy.seen import seen

    experiment = Experiment.read(file, set_ or ())
    shown, code = seen(experiment), _code_of(experiment)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "code": _documents(code), "seen": shown}))
    else:
        show_text([*shown, "", *whose_code(code)])


Code = Sequence[tuple["Component", "NamedCode | None"]]
"""The components that a file names; with code that is not fedmx's, if they have it."""


def _code_of(experiment: Experiment) -> Code:
    from fedmx.components.user_code import named_code

    components = experiment.components
    code = {one.component.where: one for one in named_code(components)}
    return [(one, code.get(one.where)) for one in components if one.source.name]


def whose_code(named: Code) -> list[str]:
    """Return the lines about the code that an experiment would run; none of it is imported."""
    from fedmx.components.text import dotted

    rows = [
        (dotted(one.where), one.name, "fedmx" if code is None else place(code))
        for one, code in named
    ]
    widths = [max(len(row[column]) for row in rows) if rows else 0 for column in (0, 1)]
    lines = [f"{where:<{widths[0]}}  {name:<{widths[1]}}  {of}" for where, name, of in rows]
    others = [code for _, code in named if code is not None]
    if not others:
        return [*lines, "", "All of this is fedmx's own code."]
    roots = ", ".join(dict.fromkeys(one.root for one in others))
    return [
        *lines,
        "",
        f"Not fedmx's own: {roots}. Running the experiment runs this code with all your",
        f"rights. It was not imported now. If you trust it: {options(others)}",
    ]


def _documents(named: Code) -> list[dict[str, str]]:
    """Return the content of `whose_code` as documents."""
    from fedmx.components.text import dotted

    return [
        {
            "where": dotted(one.where),
            "name": one.name,
            "owner": "fedmx" if code is None else code.owner,
        }
        for one, code in named
    ]


def _document(name: str) -> dict[str, Any]:
    """Return `explanation` as a document, with the catalogue's entries by their kind."""
    from fedmx.components.catalogue import read_catalogue

    text = "\n".join(explanation(name))
    found = {kind: entries.get(_key(name, entries)) for kind, entries in read_catalogue().items()}
    kinds = {kind: asdict(entry) for kind, entry in found.items() if entry is not None}
    return {"name": name, "kinds": kinds, "text": text}


def explanation(name: str) -> list[str]:
    """Return the lines about all components with a name, or about a key of an experiment file.

    Raises:
        FedmxError: there is no such component or key.
    """
    from fedmx.components.catalogue import read_catalogue
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError
    from fedmx.experiment.schema import KEYS, explained_key

    known = read_catalogue().values()
    if not any(_key(name, entries) in entries for entries in known):
        told = explained_key(name)
        if told:
            return told
        keys = {*KEYS, *(one for entries in known for one in entries)}
        names = [f"{one}NAME" if one.endswith(":") else one for one in sorted(keys)]
        near = difflib.get_close_matches(name[:100], names, n=5, cutoff=0)
        text = unknown("name or key", name, near, listed="the nearest are")
        raise FedmxError(f"{text}; fedmx list shows all names")

    from fedmx.components.catalogue import NOUN_OF, components
    from layers.logic.core.preset import parts_of

    lines: list[str] = []
    parts: list[object] = []  # of the preset; they are not explained a second time
    for kind, entries in components().items():
        key = _key(name, entries)
        entry = entries.get(key)
        if entry is None or entry in parts:
            continue
        lines += ["", ""] if lines else []
        lines += [f"{name}: {NOUN_OF[kind]}", ""]
        preset = _default_instance(entry) if kind == "presets" else None
        if preset is not None:
            lines += [*_own_lines(entry), "", *_preset_lines(entry, preset)]
            parts = [type(part) for part in parts_of(preset)]
            continue
        lines += _documentation(entry, None, key.endswith(":"))
        if kind == "models" and not name.endswith(":"):
            lines += ["", *_tensor_lines(name)]
        if kind in ("selectors", "aggregators", "hooks", "trainers", "attacks"):
            part = _default_instance(entry)
            lines += ["", *_part_lines(part)] if part is not None else []
    return lines


def _tensor_lines(name: str) -> Iterator[str]:
    """Yield the names and shapes of a model's tensors, as they are before any data are seen."""
    from fedmx.errors import FedmxError
    from layers.compute.engines.mxnet.models import build_model
    from layers.compute.errors import ComputeError

    try:
        from layers.compute.engines.mxnet.parameters import constant, parameters, trainable
    except ImportError:
        yield "tensors: not known without MXNet"
        return
    try:
        named = [one for one in parameters(build_model(name)()) if not constant(one[1])]
    except ComputeError as error:
        raise FedmxError(str(error)) from None
    width = max(len(one) for one, _ in named)
    for title, wanted in (("tensors", True), ("buffers", False)):
        lines = [
            f"  {one:<{width}}  {' x '.join(str(n) if n > 0 else '?' for n in parameter.shape)}"
            for one, parameter in named
            if trainable(parameter) is wanted
        ]
        if lines:
            yield f"{title} (?: as the data need):"
            yield from lines


def preset_section(preset: Preset) -> dict[str, Any]:
    """Return the logic section of an experiment file that names the parts of a preset."""
    from layers.logic.core.preset import kinds_of

    section: dict[str, Any] = {}
    for noun, part in kinds_of(preset):
        reference = _reference(noun, part)
        if noun == "hook":
            section.setdefault("hooks", []).append(reference)
        else:
            section[noun] = reference
    return {**section, "own": list(preset.own)} if preset.own else section


def _key(name: str, entries: Mapping[str, Any]) -> str:
    """Return the key of a name's entry; for ``gluon:resnet18_v1`` it is the family ``gluon:``."""
    zoo = f"{name.partition(':')[0]}:"
    return zoo if ":" in name and zoo in entries else name


def _default_instance(entry: Callable[..., Any]) -> Any:
    """Return the component with its default settings, or None if some setting is required."""
    from fedmx.components.settings import signature_of

    required = any(one.required for one in signature_of(entry).settings.values())
    return None if required else entry()


def _own_lines(entry: Callable[..., Preset]) -> Iterator[str]:
    """Yield the text on a preset, and the settings that it has besides those of its parts."""
    from fedmx.components.settings import signature_of

    own = signature_of(inspect.unwrap(entry)).settings
    text, settings_text = _split(entry)
    yield from _paragraphs(text)
    yield ""
    yield "settings, besides those of its parts below:" if own else "settings: those of its parts"
    for setting in own.values():
        yield from _setting_lines(setting, str(setting), settings_text)


def _preset_lines(entry: Callable[..., Preset], preset: Preset) -> Iterator[str]:
    """Yield the lines about the parts of a preset, and how an experiment file names them."""
    import yaml

    from layers.logic.core.preset import kinds_of

    fixed: Mapping[str, str] = getattr(entry, "fixed", {})
    yield "Made of:"
    for noun, part in kinds_of(preset):
        yield ""
        yield f"{noun} {_name(noun, part)}"
        for line in _documentation(type(part), part, family=False, fixed=fixed):
            yield f"  {line}".rstrip()
        yield ""
        for line in _part_lines(part):
            yield f"  {line}".rstrip()
    yield ""
    yield "In an experiment file, by hand:"
    yield ""
    text = yaml.safe_dump({"logic": preset_section(preset)}, sort_keys=False, width=96)
    yield from (f"  {line}" for line in text.splitlines())


def _name(noun: str, part: object) -> str:
    """Return the name of a part in an experiment file."""
    from fedmx.components.catalogue import KINDS, components
    from fedmx.components.component import Component

    names = {entry: name for name, entry in components()[KINDS[noun].plural].items()}
    return names.get(type(part)) or Component.of(part).name


def _reference(noun: str, part: Any) -> dict[str, Any]:
    """Return a part's entry in an experiment file, without settings that are null by default."""
    from fedmx.components.component import plain

    given = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
    optional = {one.name for one in fields(part) if one.default is None}
    settings = {k: plain(v) for k, v in given.items() if v is not None or k not in optional}
    return {"name": _name(noun, part), **settings}


def _part_lines(part: Part) -> Iterator[str]:
    """Yield the declarations and exclusions of a part, and for a hook the methods of its sides."""
    from layers.logic import ClientSide, Hook, ServerSide
    from layers.logic.core.declaration import declared, exclusions

    if isinstance(part, Hook):
        sides: tuple[tuple[str, object, type], ...] = (
            ("server", part.server(), ServerSide),
            ("client", part.client(), ClientSide),
        )
        for end, side, plain in sides:
            steps = [
                step
                for step in vars(plain)
                if step[0] != "_" and getattr(type(side), step) is not getattr(plain, step)
            ]
            yield f"on the {end}: {', '.join(steps) or 'nothing'}"
    for title, lines in (
        ("it", sorted(one.value for one in declared(part))),
        ("it is refused", sorted(set(exclusions(part)))),
    ):
        if lines:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)


def _documentation(
    entry: Any, part: object, family: bool, fixed: Mapping[str, str] | None = None
) -> list[str]:
    """Return the documentation of a component, and its settings: those of `part`, or defaults.

    Args:
        entry: the class or function.
        part: the object whose values are shown; None: the defaults.
        family: whether the first setting is the end of the name, and is left out.
        fixed: the settings that the preset of this part does not take, each with the reason.
    """
    from fedmx.components.settings import signature_of, spelled

    text, settings_text = _split(entry)
    if inspect.isclass(entry):
        text = _with_module_text(entry, text)
    lines = _paragraphs(text)
    settings = list(signature_of(entry).settings.values())[1 if family else 0 :]
    lines += ["", "settings:"] if settings else []
    for one in settings:
        value = str(one) if part is None else f"{one.name} = {spelled(getattr(part, one.name))}"
        lines += _setting_lines(one, value, settings_text)
        if fixed and one.name in fixed:
            lines.append(f"      fixed in the preset: {fixed[one.name]}")
    return lines


def _setting_lines(
    setting: Setting, value: str, settings_text: Mapping[str, list[str]]
) -> list[str]:
    """Return the lines about one setting."""
    first = f"  {value}: {setting.type}{', must be given' if setting.required else ''}"
    about = " ".join(settings_text.get(setting.name, ()))
    return [first, f"      {about}"] if about else [first]


def _paragraphs(text: str) -> list[str]:
    """Return the lines of a text, each paragraph as one line; indented lines and lists are kept."""
    lines: list[str] = []
    for line in text.splitlines():
        goes_on = lines and lines[-1] and line and not line.startswith((" ", "- ", "* ", "|"))
        if goes_on and not lines[-1].startswith((" ", "|")):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return lines


def _with_module_text(entry: type, text: str) -> str:
    """Return the documentation of a class, inside that of its module if no other shares it."""
    from fedmx.components.catalogue import components

    peers = {one for group in components().values() for one in group.values()}
    if any(one is not entry and one.__module__ == entry.__module__ for one in peers):
        return text
    module = inspect.getdoc(sys.modules[entry.__module__]) or ""
    opening, _, more = module.replace("``", "`").partition("\n\n")
    return "\n\n".join(part for part in (opening, text, more) if part)


def _split(entry: Any) -> tuple[str, dict[str, list[str]]]:
    """Return a docstring without its sections, and the lines about each argument or attribute."""
    from layers.logic.core.preset import split_docstring

    text, entries = split_docstring(entry)
    shortened = text.removeprefix("Return ")
    return text if shortened == text else shortened[:1].upper() + shortened[1:], entries
