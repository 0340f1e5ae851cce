"""The modules of a user's own that an experiment needs, found without the import of any of them."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.components.user_code import is_installed
from fedmx.experiment.own_code import NamedCode, named_code, owner_of
from fedmx.pack.container import MODULES, is_name
from fedmx.pack.errors import PackError

FEDMX = ("fedmx", "layers")


@dataclass
class OwnModules:
    """What an experiment names that is not fedmx's.

    Attributes:
        files: the content of each module, by the name of its member in a pack.
        packages: name and version of the installed package that each other module is from.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


def own_modules(experiment: Path, folder: Path) -> OwnModules:
    """Return the modules that an experiment names, and those of the user's own that they import.

    A module that Python or an installed package provides is named with its version only. What a
    module imports is read from its ``import`` statements.

    Args:
        experiment: the experiment file.
        folder: where its own modules are.

    Raises:
        PackError: a module is not there, or cannot be in a pack.
    """
    found = OwnModules()
    for code in named_code(experiment, (), folder):
        if code.owner is not None:
            _add(found, code.root, folder, code)
    return found


def roots_of(names: Iterable[str]) -> frozenset[str]:
    """Return the modules whose text is in a pack, from the names of its members."""
    inside = (name.removeprefix(MODULES) for name in names if name.startswith(MODULES))
    return frozenset(name.partition("/")[0].removesuffix(".py") for name in inside)


def check_root(root: str) -> None:
    """Check that a module does not stand in the place of one that fedmx itself runs on.

    Raises:
        PackError: it does.
    """
    if root in sys.stdlib_module_names or root in FEDMX:
        raise PackError(f"the module {root} has the name of one of Python's or fedmx's; rename it")


def _add(found: OwnModules, root: str, folder: Path, code: NamedCode | None = None) -> None:
    """Add a module or package, and what of the user's own it imports; `code` is what names it."""
    if root in FEDMX or root in sys.stdlib_module_names or root in found.packages:
        return
    _, file = owner_of(root, folder)
    if file is None:
        if code is None:
            return  # an optional import of a module that is not here
        raise PackError(f"{code.name}: there is no module {root} in {folder}; restore it")
    if is_installed(file):
        if code is not None:
            found.packages[root] = _version(root)
        return
    place = file.parent if file.name == "__init__.py" else file
    if f"{MODULES}{root}.py" in found.files or f"{MODULES}{root}/" in _folders(found.files):
        return
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    texts: dict[Path, bytes] = {}
    for path in paths:
        inside = path.relative_to(place.parent).as_posix()
        if not is_name(f"{MODULES}{inside}"):
            if all(part.removesuffix(".py").isidentifier() for part in inside.split("/")):
                raise PackError(f"{path}: a pack holds modules of plain ASCII names; rename it")
            continue  # a script: no name of it could be imported
        texts[path] = found.files[f"{MODULES}{inside}"] = path.read_bytes()
    for path, text in texts.items():
        for imported in _imports(text, path):
            _add(found, imported, folder)


def _folders(names: dict[str, bytes]) -> set[str]:
    return {"/".join(name.split("/")[:2]) + "/" for name in names if name.count("/") > 1}


def _imports(text: bytes, path: Path) -> Iterator[str]:
    """Yield the first name of each absolute import in a module's text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise PackError(f"{path}: it is no Python module ({error})") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _version(root: str) -> str:
    """Return the name and version of the installed package that a module is from."""
    for name in importlib.metadata.packages_distributions().get(root, ()):
        return f"{name} {importlib.metadata.version(name)}"
    return f"{root} of an unknown version"
