"""A component as an experiment names it, and the source of the experiment with its lines."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from fedmx.components.catalogue import KINDS, NOUNS, read_catalogue
from fedmx.components.settings import noun_of_part
from fedmx.components.text import Where, dotted, shown

OVERRIDDEN, VARIED = 0, -1
"""The line numbers of values that ``--set`` and ``--vary`` gave."""

OPTIONS = {OVERRIDDEN: "--set", VARIED: "--vary"}


@dataclass(frozen=True)
class Source:
    """The file of an experiment, its lines, and the modules that it may import.

    Attributes:
        name: the file's name for messages; empty for an experiment made in Python.
        folder: the file's folder; the experiment can name modules in it.
        modules: the modules that the experiment may import, with their submodules; None: all.
        lines: the line of each place, from 1; one of `OPTIONS` for values of an option.
    """

    name: str = ""
    folder: Path | None = None
    modules: frozenset[str] | None = None
    lines: Mapping[Where, int] = field(default_factory=dict)

    def line_of(self, where: Where) -> int | None:
        """Return the line of a place, or of the nearest place above it whose line is known."""
        above = (where[:n] for n in range(len(where), -1, -1))
        return next((self.lines[place] for place in above if place in self.lines), None)

    def problem(self, where: Where, text: str) -> str:
        """Return a message of one line: file, line, dotted path and ``text``.

        It gives the line of the place, or of the nearest place above it with a known line.
        """
        line, path = self.line_of(where), dotted(where)
        if line in OPTIONS:
            return f"{OPTIONS[line]} {path}: {text}"
        place = self.name if line is None else f"{self.name}:{line}"
        return ": ".join(part for part in (place, path, text) if part)


_MAX_DEPTH = 32  # nesting of settings; experiment.reader has the same limit


@dataclass(frozen=True)
class Component:
    """The name and settings of a model, a data set, a hook or another component.

    `fedmx.components.build` makes the component from it.

    Attributes:
        name: a name of fedmx, or ``package.module:Name``.
        settings: the value of each setting.
        object: an instance, or a class or function that makes one, if Python code gave it instead
            of a name; else None.
        where: the place in the experiment, for messages.
        source: the experiment's source, for messages and for the import of user code.
        noun: the noun of its kind if it is in a setting of another component; otherwise empty.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    object: Any = None
    where: Where = field(default=(), compare=False, repr=False)
    source: Source = field(default_factory=Source, compare=False, repr=False)
    noun: str = field(default="", compare=False, repr=False)

    @classmethod
    def of(cls, value: Any, where: Where = (), source: Source | None = None) -> Component:
        """Make a reference from a value of an experiment.

        Args:
            value: a name, a mapping with ``name``, a Component, or any other object.
            where: the place in the experiment.
            source: the experiment's source; None for one made in Python.

        Raises:
            ValueError: the value is none of these; the text is written for users.
        """
        source = source or Source()
        if isinstance(value, Component):
            return dataclasses.replace(value, where=where, source=value._within(source))
        if isinstance(value, str):
            return cls(_check_name(value), {}, None, where, source)
        if isinstance(value, Mapping):
            if "name" not in value:
                raise ValueError("must say its name: write NAME or {name: NAME, ...}")
            settings = {key: given for key, given in value.items() if key != "name"}
            for key in settings:
                if not isinstance(key, str):
                    raise ValueError(f"the name of a setting must be text, not {shown(key)}")
            return cls(_check_name(value["name"]), settings, None, where, source)
        if value is None or isinstance(value, bool | int | float | list | tuple | set | bytes):
            raise ValueError(f"must be a name or a mapping with a name, not {shown(value)}")
        return cls(_code_name(value), {}, value, where, source)

    def _within(self, source: Source) -> Source:
        """Return another source with this component's folder and permission."""
        known = self.source.folder is not None or self.source.modules is not None
        if self.object is not None or not known:
            return source
        modules = None if self.given_by_hand else self.source.modules
        return dataclasses.replace(source, folder=self.source.folder, modules=modules)

    def problem(self, text: str) -> str:
        """Return a message about the component, with its place; see `Source.problem`."""
        return self.source.problem(self.where, text)

    @property
    def is_of_fedmx(self) -> bool:
        """Whether its name is not that of a user's own code."""
        return ":" not in self.name and not self.name.startswith("<")

    @property
    def kind(self) -> str:
        """The noun of its kind, by its place in the experiment."""
        return self.noun or NOUNS[tuple(str(key) for key in self.where if not isinstance(key, int))]

    def inner(self, setting: str, noun: str) -> list[Component]:
        """Return the components that a setting gives, one or a list; null gives none.

        Args:
            setting: the name of the setting.
            noun: the noun of their kind.

        Raises:
            ValueError: the value is no component; see `of`.
        """
        value, where = self.settings[setting], (*self.where, setting)
        if isinstance(value, list | tuple):
            given = [((*where, index), item) for index, item in enumerate(value)]
        else:
            given = [] if value is None else [(where, value)]
        made = [self.of(item, place, self.source) for place, item in given]
        return [dataclasses.replace(one, noun=noun) for one in made]

    def all_inner(self) -> Iterator[Component]:
        """Yield the components in its settings, and in theirs; nothing is imported to find them.

        The types of the settings of a user's own code are not known. In these, each mapping with
        the name of a user's own code counts, and its kind is taken to be this one's.
        """
        entry = read_catalogue()[KINDS[self.kind].plural].get(self.name)
        for setting, value in self.settings.items() if self.object is None else ():
            noun = entry.parts.get(setting) if entry is not None else None
            if entry is None and _has_names(value):
                noun = self.kind
            try:
                found = self.inner(setting, noun) if noun is not None else []
            except ValueError:
                continue  # what is no component is refused where the type is known
            for one in found:
                if entry is not None or ":" in one.name:
                    yield one
                yield from one.all_inner()

    @property
    def given_by_hand(self) -> bool:
        """Whether the user typed its name after ``--set`` or ``--vary``."""
        return self.source.line_of((*self.where, "name")) in OPTIONS

    @property
    def not_portable_reason(self) -> str | None:
        """Why a file cannot hold this component, or None if it can."""
        if self.object is None:
            if self.name.startswith("<"):
                return f"{self.name} was an object of a Python program, which a file cannot hold"
            return _not_plain_reason(self.settings)
        if self.name.startswith("<"):
            return (
                f"{self.name} cannot be imported by name; define its class at the top of a module "
                "that every machine has, not in a function or in the script that is run"
            )
        if _is_code(self.object):
            return None
        if not dataclasses.is_dataclass(self.object):
            return f"an object of {self.name}, which is not a dataclass: its settings are unknown"
        settings = _fields(self.object)
        if "name" in settings:
            return f"{self.name} has a field 'name', which in a file is the component's own name"
        return _not_plain_reason(settings)

    @property
    def portable(self) -> bool:
        """Whether a file, and so another machine, can hold this component."""
        return self.not_portable_reason is None

    def reference(self) -> str | dict[str, Any]:
        """Return the component in its form in a file: a name, or a mapping of its name and
        settings."""
        if not self.portable:
            return self.name if self.name.startswith("<") else f"<object {self.name}>"
        given = self.settings
        if self.object is not None and not _is_code(self.object):
            given = _fields(self.object)
        settings = {key: plain(value) for key, value in given.items()}
        return {"name": self.name, **settings} if settings else self.name


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as text, numbers, lists and mappings, which YAML and JSON can hold.

    Args:
        value: any value of a setting.
        depth: how deep the value is nested.

    Raises:
        ValueError: something in it has another type, is NaN, or is too large.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"the text {value[:20]!a} has characters that UTF-8 cannot hold")
        return str(value)
    if isinstance(value, PurePath):
        return plain(str(value))
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError("a whole number has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("a number is NaN")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if noun_of_part(type(value)) is not None:
        part = Component.of(value)
        if part.not_portable_reason is not None:
            raise ValueError(part.not_portable_reason)
        return part.reference()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a mapping has keys that are not text")
        return {plain(key): plain(item, depth + 1) for key, item in value.items()}
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return plain(value.item(), depth + 1)  # a numpy scalar; numpy is not imported
    raise ValueError(
        f"an object of {type(value).__qualname__} is not text, a number, a list or a mapping"
    )


def _has_names(value: Any) -> bool:
    """Return whether a value is a mapping with a name, or a list of such mappings."""
    items = value if isinstance(value, list | tuple) else [value]
    return bool(items) and all(isinstance(one, Mapping) and "name" in one for one in items)


def _check_name(name: Any) -> str:
    """Return the name of a component, or raise ValueError if it cannot be one."""
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise ValueError(f"the name must be text without spaces around it, not {shown(name)}")
    if len(name) > 200:
        raise ValueError("the name is longer than 200 characters")
    return name


def _is_code(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}


def _code_name(value: Any) -> str:
    """Return ``module:QualName`` if an import finds the object's code, else ``<object Name>``."""
    code = value if _is_code(value) else type(value)
    module = str(getattr(code, "__module__", None) or "")
    qualified = str(getattr(code, "__qualname__", None) or type(value).__name__)
    found: Any = sys.modules.get(module) if module != "__main__" else None
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualified}" if found is code else f"<object {qualified}>"


def _not_plain_reason(settings: Mapping[str, Any]) -> str | None:
    for key, value in settings.items():
        try:
            plain(key)
            plain(value)
        except ValueError as error:
            return f"its setting {key!r} cannot be written to a file: {error}"
    return None
