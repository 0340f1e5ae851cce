"""``fedmx/experiment/arguments.pyi``: the types of `Experiment`'s arguments, for editors.

They are derived from the sections and the catalogue.
"""

from __future__ import annotations

import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmx.components.catalogue import KINDS, NOUNS, read_catalogue
from fedmx.components.section import Section
from fedmx.experiment.keys import Key, keys_of, plain
from fedmx.experiment.model import Experiment

_WIDTH = 96
_HEADER = '''"""The arguments of `Experiment`, written by `make generate`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from typing_extensions import Required, TypedDict
'''


def stub() -> str:
    """Return the text of the stub."""
    keys = list(keys_of(Experiment))
    sections: dict[type[Section], None] = dict.fromkeys(
        [Experiment, *(key.above for _, key in keys)]
    )
    lines = [_HEADER]
    for where, key in keys:
        if key.takes_component:
            lines += _component(where)
    for section in sections:
        own = [(where, key) for where, key in keys if key.above is section]
        lines += _section(section, own)
    return "\n".join(lines)


def _component(where: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of the type of a component: a name, a mapping, an object or a class."""
    entries = read_catalogue()[KINDS[NOUNS[where]].plural]
    names = [name for name in entries if not name.endswith(":")]
    alias = _alias(where)
    if len(names) == 1:  # as the formatter writes it
        yield f'{alias}Name: TypeAlias = Literal["{names[0]}"]'
    else:
        yield f"{alias}Name: TypeAlias = Literal["
        yield from (f'    "{name}",' for name in names)
        yield "]"
    yield f"{alias}: TypeAlias = {alias}Name | Mapping[str, Any] | object"
    yield ""


def _section(section: type[Section], keys: list[tuple[tuple[str, ...], Key]]) -> Iterator[str]:
    """Yield the lines of the class with the keys of a section."""
    yield f"class {_name(section)}(TypedDict, total=False):"
    yield from _docstring(inspect.getdoc(section) or "")
    yield ""
    for where, key in keys:
        text = _type_of(where, key)
        yield f"    {key.name}: {f'Required[{text}]' if key.field.is_required() else text}"
        yield from _docstring(plain(key.text))
    yield ""


def _docstring(text: str) -> list[str]:
    first = " ".join(text.split("\n\n")[0].split())
    return textwrap.wrap(
        f'"""{first}"""',
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_on_hyphens=False,
    )


def _type_of(where: tuple[str, ...], key: Key) -> str:
    null = " | None" if key.takes_null else ""
    if key.takes_component:
        alias = _alias(where)
        return f"Sequence[{alias}]" if key.takes_list else f"{alias}{null}"
    if key.section is None:
        return _text(key.field.annotation)
    short = key.section.short_form
    also = "" if short is None else f" | {_text(short)}"
    return f"{_name(key.section)} | Mapping[str, Any]{also}{null}"


def _text(annotation: Any) -> str:
    """Return the annotation of a value, as Python code gives it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _text(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_text, arguments))
    if origin is typing.Literal:
        names = ", ".join(f'"{one}"' for one in arguments)
        return f"Literal[{names}]"
    if origin is tuple:
        return f"Sequence[{_text(arguments[0])}]"
    if annotation is type(None):
        return "None"
    return "str | Path" if annotation is Path else str(annotation.__name__)


def _name(section: type[Section]) -> str:
    return f"{section.__name__.removesuffix('Section')}Keys"


def _alias(where: tuple[str, ...]) -> str:
    return NOUNS[where].title().replace(" ", "")
