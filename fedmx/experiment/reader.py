"""Reads and writes experiment files: YAML text becomes plain values, with the line of each.

The scalars are those of YAML 1.2's core schema (section 10.3.2), without octal and hexadecimal
numbers. So ``1e-3`` is a number, and ``yes``, ``on``, ``010`` and ``1:30`` are text, unlike in
YAML 1.1. A text is one document. Keys are text and occur once. Tags, anchors and aliases are
refused.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmx.components.component import Source
from fedmx.components.text import Where, dotted, shown
from fedmx.errors import ExperimentError

SIZE_LIMIT_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_VALUES = 20_000

_TAG = "tag:yaml.org,2002:"
_SCALARS = (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")),
    (
        "float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+[eE][-+]?[0-9]+"
            r"|[0-9]+[eE][-+]?[0-9]+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
)


class _Composer(yaml.composer.Composer):
    """Composes the nodes of an experiment."""

    _depth = 0
    _values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one node; refuse tags, anchors, aliases and large texts."""
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        line = event.start_mark.line + 1
        self._values += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _NotAllowed(
                line, "anchors and aliases (& and *) are not allowed; write the value out"
            )
        if event.tag is not None:
            tag = shown(str(event.tag).replace(_TAG, "!!"))
            raise _NotAllowed(line, f"the tag {tag} is not allowed; write the plain value")
        if self._depth >= _MAX_DEPTH:
            raise _NotAllowed(line, f"nested more than {_MAX_DEPTH} deep")
        if self._values > _MAX_VALUES:
            raise _NotAllowed(
                line, f"more than {_MAX_VALUES} values; keep data in files of their own"
            )
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class Loader(_Composer, yaml.SafeLoader):
    """PyYAML's safe loader; only its nodes are used, not its values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - add_implicit_resolver fills it


if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class _Quick(_Composer, CParser, yaml.resolver.Resolver):
        """The same with libyaml's parser, which is several times as fast; its errors are others."""

        yaml_implicit_resolvers = Loader.yaml_implicit_resolvers

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            _Composer.__init__(self)
            yaml.resolver.Resolver.__init__(self)


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads: the same scalars, and no aliases."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - add_implicit_resolver fills it

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: a value that occurs twice is written twice."""
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.Node:
    # Only double quotes keep unprintable characters, such as U+0085, a line break in YAML 1.1.
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar(f"{_TAG}str", text, style=style)


Dumper.add_representer(str, _represent_text)
for _name, _pattern, _first in _SCALARS:
    Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)
    Dumper.add_implicit_resolver(_TAG + _name, _pattern, _first)


class _NotAllowed(Exception):
    """YAML that an experiment must not have, and its line."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of an experiment file.

    Raises:
        ExperimentError: the file cannot be read, is a pipe, is too large, or is not UTF-8.
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe gives its text only once
            raise ExperimentError(
                f"{path}: is not a regular file, which is read more than once; write the "
                "experiment to a file"
            )
        with open(path, "rb") as file:
            content = file.read(SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise ExperimentError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise ExperimentError(f"{path}: is a folder; name the experiment file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ExperimentError(f"{shown(str(path))}: cannot be read: {reason}") from error
    if len(content) > SIZE_LIMIT_BYTES:
        raise ExperimentError(
            f"{path}: is larger than 1 MiB; give an experiment file of a few lines"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ExperimentError(f"{path}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def parse_text(text: str, name: str, folder: Path | None = None) -> tuple[dict[str, Any], Source]:
    """Return the mapping in a YAML text, and its source with the line of each value.

    Args:
        text: the text.
        name: what messages call the text.
        folder: where to look for modules that the text names.

    Raises:
        ExperimentError: the text is not YAML, or not a mapping.
    """
    lines: dict[Where, int] = {}
    value = _parse(text, name, lines)
    if value is None:
        raise ExperimentError(f"{name}: is empty; an experiment needs rounds, clients and compute")
    if not isinstance(value, dict):
        raise ExperimentError(
            f"{name}:1: must be a mapping (rounds: 10, clients: 20, ...), not {shown(value)}"
        )
    return value, Source(name=name, folder=folder, lines=lines)


def values_in(text: str) -> dict[str, Any]:
    """Return the mapping in a YAML text that was read before, without the places of its values.

    Raises:
        ExperimentError: the text is not YAML, or not a mapping.
    """
    quick = _Quick if yaml.__with_libyaml__ else Loader
    try:
        node = quick(text).get_single_node()
        value = None if node is None else _value(node, (), {})
    except (_NotAllowed, yaml.YAMLError, UnicodeEncodeError) as error:
        raise ExperimentError(f"is not an experiment: {error}") from None
    if not isinstance(value, dict):
        raise ExperimentError(f"must be a mapping, not {shown(value)}")
    return value


def parse_value(text: str, name: str) -> Any:
    """Return the value of a YAML text, such as the one after ``--set``.

    Raises:
        ExperimentError: the text is not YAML; the message begins with ``name``.
    """
    return _parse(text, name, None)


def yaml_of(tree: Mapping[str, Any]) -> str:
    """Return a mapping as YAML text that reads back equal."""
    text = yaml.dump(
        tree,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return str(text)


def _parse(text: str, name: str, lines: dict[Where, int] | None) -> Any:
    """Return the value of a text, and fill ``lines`` if it is not None."""
    if len(text) > SIZE_LIMIT_BYTES:
        raise ExperimentError(f"{name}: is larger than 1 MiB; give a few lines of YAML")
    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return None if node is None else _value(node, (), {} if lines is None else lines)
    except _NotAllowed as error:
        line, problem = error.line, str(error)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"holds the character {text[error.position]!a}, which YAML does not allow"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, problem = mark.line + 1 if mark else None, _yaml_problem(error)
    place = f"{name}:{line}" if lines is not None and line else name
    raise ExperimentError(f"{place}: {problem}")


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    """Return in plain words what PyYAML says."""
    problem = " ".join((error.problem or error.context or "cannot be understood").split())
    if "'\\t'" in problem:
        return "is indented with a tab; use spaces"
    if "single document" in str(error.context):
        return "holds more than one document; write one experiment, without a second ---"
    return f"is not YAML: {problem}; check the indentation, quotes and brackets here"


def _value(node: yaml.Node, where: Where, lines: dict[Where, int]) -> Any:
    """Return the value of a node at the place ``where``, and fill ``lines``."""
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = _value(key_node, where, {})
            if not isinstance(key, str):
                raise _NotAllowed(line, f"a key must be text, not {shown(key)}; write it in quotes")
            if key in mapping:
                place = f" in {dotted(where)}" if where else ""
                raise _NotAllowed(line, f"the key {shown(key)} occurs twice{place}; remove one")
            below = (*where, key)
            lines[below] = line
            mapping[key] = _value(value_node, below, lines)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*where, index), lines) for index, item in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    """Return the value of a scalar."""
    text, line = str(node.value), node.start_mark.line + 1
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
            raise _NotAllowed(line, "a whole number has more than 64 bits")
        return int(text)
    if kind == "float":
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if math.isnan(number):
            raise _NotAllowed(line, ".nan is not a setting; give a number")
        return number
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _NotAllowed(line, "text holds half of a surrogate pair; write the character itself")
    return text
