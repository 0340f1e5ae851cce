"""Whose code an experiment file names, found out without the import of any of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from fedmx.components.component import OVERRIDDEN, Source
from fedmx.components.text import Where
from fedmx.experiment.names import names_in, read_tree

Owner = Literal["beside", "here", "installed", "missing"]
"""Where a module is: beside the experiment, in the working directory, among the installed ones."""


@dataclass(frozen=True)
class NamedCode:
    """A component of an experiment file.

    Attributes:
        where: its place in the file.
        name: its name.
        source: the file, for messages.
        owner: whose code it is; None: fedmx's own.
        file: the module's file or folder; None: fedmx's own, or not found.
    """

    where: Where
    name: str
    source: Source
    owner: Owner | None = None
    file: Path | None = None

    @property
    def module(self) -> str:
        """The module, as ``package.module``."""
        return self.name.partition(":")[0]

    @property
    def root(self) -> str:
        """The package or module that a permission names."""
        return self.module.partition(".")[0]

    @property
    def given_by_hand(self) -> bool:
        """Whether the name was typed after ``--set``."""
        return self.source.line_of((*self.where, "name")) == OVERRIDDEN


def named_code(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), folder: Path | None = None
) -> list[NamedCode]:
    """Return all components that an experiment file names, in the order of the schema.

    Args:
        path: the file.
        overrides: ``PATH=VALUE`` texts, as after ``--set``.
        folder: where its own modules are; None: the file's folder.

    Raises:
        ExperimentError: the file cannot be read, or is not YAML.
    """
    tree, source = read_tree(path, overrides)
    folder = (folder or Path(path).resolve().parent).resolve()
    found = []
    for where, name, _, known in names_in(tree):
        family = any(key.endswith(":") and name.startswith(key) for key in known)
        if ":" not in name or family or name.startswith("<"):
            found.append(NamedCode(where, name, source))
        else:
            owner, file = owner_of(name.partition(":")[0], folder)
            found.append(NamedCode(where, name, source, owner, file))
    return found


def owner_of(module: str, folder: Path) -> tuple[Owner, Path | None]:
    """Return where the import of a module would find it, and its file or folder.

    The installed ones come first, then those in `folder`, then those in the working directory.
    """
    beside = (folder, Path.cwd())
    installed = [one for one in sys.path if Path(one or ".").resolve() not in beside]
    places: tuple[tuple[Owner, list[str]], ...] = (
        ("installed", installed),
        ("beside", [str(folder)]),
        ("here", [str(Path.cwd())]),
    )
    for owner, path in places:
        if PathFinder.find_spec(module.partition(".")[0], path) is not None:
            file = _file_of(module, path)
            return ("missing", None) if file is None else (owner, file)
    return "missing", None


def _file_of(module: str, path: Sequence[str]) -> Path | None:
    """Return the file of a module, or a folder; its packages are not imported."""
    spec = None
    for name in _prefixes(module):
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    if spec is not None and spec.has_location and spec.origin:
        return Path(spec.origin)
    return Path(path[0]) if path else None


def _prefixes(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:number]) for number in range(1, len(parts) + 1))
