"""A user's own code: who owns it, its import as ``package.module:Name``, and where it failed."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from fedmx.components.catalogue import KINDS, read_catalogue
from fedmx.components.component import Component
from fedmx.components.text import Where, first_line, shown, unknown
from fedmx.errors import FedmxError

_OWN_PACKAGES = ("fedmx", "layers")
_MAX_NAMES = 40


class UserCodeError(FedmxError):
    """A user's own code cannot be found or imported, or is not allowed."""


Owner = Literal["beside", "here", "installed", "missing"]
"""Where a module is: beside the experiment, in the working directory, or installed."""


@dataclass(frozen=True)
class NamedCode:
    """Code that an experiment names and that is not fedmx's.

    Attributes:
        component: the component that names it.
        owner: whose code it is.
        file: the module's file or folder; None: it was not found.
    """

    component: Component
    owner: Owner
    file: Path | None

    @property
    def name(self) -> str:
        """The name, as ``package.module:Name``."""
        return self.component.name

    @property
    def where(self) -> Where:
        """The place of the component."""
        return self.component.where

    @property
    def root(self) -> str:
        """The package or module that a permission names."""
        return self.name.partition(":")[0].partition(".")[0]


def named_code(components: Iterable[Component]) -> list[NamedCode]:
    """Return the code of users that components name; nothing is imported to find it.

    A component that holds an object names no code: the object is there already.
    """
    code = []
    for one in components:
        families = [key for key in read_catalogue()[KINDS[one.kind].plural] if key.endswith(":")]
        fedmx_has_it = ":" not in one.name or one.name.startswith(("<", *families))
        if one.object is None and not fedmx_has_it:
            folder = one.source.folder or Path.cwd()
            code.append(NamedCode(one, *owner_of(one.name.partition(":")[0], folder.resolve())))
    return code


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


def import_user_code(name: str, folder: Path | None, modules: Collection[str] | None) -> Any:
    """Return the class, function or object that ``package.module:Name`` names.

    Python's own modules are refused, so that an experiment file cannot name ``os:system``.

    Args:
        name: the name.
        folder: where to look for the module after Python's own path and before the working
            directory.
        modules: the modules that may be imported, with their submodules; None: all.

    Raises:
        UserCodeError: the name has another form, is not allowed or does not exist, or its module
            cannot be imported.
    """
    path, _, qualified = name.partition(":")
    parts, attributes = path.split("."), qualified.split(".")
    if not all(part.isidentifier() and not part.startswith("_") for part in parts + attributes):
        raise UserCodeError(f"{shown(name)} is not of the form package.module:Name")
    if not is_allowed(name, modules):
        raise UserCodeError(not_allowed(name, modules))
    _check_not_pythons(parts[0], name)
    folders = [found.resolve() for found in (folder, Path.cwd()) if found is not None]
    module = _import_module(path, name, folders)
    _check_namesake(parts[0], name, folders)
    found: Any = module
    for attribute in attributes:
        if found is not module and not inspect.isclass(found):
            raise UserCodeError(f"{shown(name)}: only a class can have names inside it")
        if attribute not in dir(found):
            text = unknown("name", attribute, _own_names(found, path), listed="its own are")
            raise UserCodeError(f"{shown(name)} leads to {_file(module)}: {text}")
        found = getattr(found, attribute)
    if inspect.ismodule(found):
        raise UserCodeError(f"{shown(name)} is a module; name a class or function in it")
    if inspect.isclass(found) or inspect.isroutine(found):
        _check_not_pythons(str(getattr(found, "__module__", None) or "").partition(".")[0], name)
    return found


def is_allowed(name: str, modules: Collection[str] | None) -> bool:
    """Return whether ``package.module:Name`` is in one of the modules, or below it; None: all."""
    path = name.partition(":")[0]
    return modules is None or any(path == one or path.startswith(f"{one}.") for one in modules)


def not_allowed(name: str, modules: Collection[str] | None) -> str:
    """Return the message about a name in a module that is not allowed."""
    path = name.partition(":")[0]
    return (
        f"{shown(name)} names code of the module {shown(path)}, which is not allowed here "
        f"(allowed: {', '.join(sorted(modules or ())) or 'none'}); if you trust it, allow it: "
        f"--module {path}, or modules=[...] in Python"
    )


def place_of(error: BaseException) -> str:
    """Return ``FILE:LINE`` where an exception was raised, or an empty text if no file is known.

    A line in a user's own file is preferred to one in a library. An error of the logic layer about
    a part knows the place of the part.
    """
    known = getattr(error, "place", None)
    if isinstance(known, str) and known:
        return known
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and Path(frame.filename).parent not in _IMPORTERS
    ]
    own = [frame for frame in frames if not is_installed(Path(frame[0]))]
    file, line = (own or frames or [("", 0)])[-1]
    return f"{file}:{line}" if file else ""


_IMPORTERS = (Path(__file__).parent, Path(importlib.__file__).parent)
"""The folders of the code that imports a user's code; they are in each traceback."""


def own_code(folder: Path | None) -> dict[str, str]:
    """Return the SHA-256 (hex) of each of the user's own modules that is imported, by its file.

    These are the modules below `folder` that belong to neither an installed package nor fedmx.
    Their files are named relative to `folder`.
    """
    if folder is None:
        return {}
    home, found = folder.resolve(), {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] in (*_OWN_PACKAGES, "__main__") or not file.endswith(".py"):
            continue
        if file.startswith(_homes()):  # most are: a process has two thousand modules
            continue
        path = Path(file).resolve()
        if home in path.parents and not is_installed(path) and path.is_file():
            found[path.relative_to(home).as_posix()] = sha256(path.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    return str(path).startswith(_homes())


@cache
def _homes() -> tuple[str, ...]:
    """Return how the files of Python and of installed packages begin."""
    homes = {Path(sysconfig.get_path(one)) for one in ("stdlib", "purelib", "platlib")}
    return tuple(f"{home}{os.sep}" for one in homes for home in {one, one.resolve()})


def _import_module(path: str, name: str, folders: list[Path]) -> ModuleType:
    """Return the imported module; ``folders`` are searched after Python's own path."""
    for folder in folders:
        # At the end, so that a user's file does not hide an installed module of the same name.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(path)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (path == missing or path.startswith(f"{missing}.")):
            raise UserCodeError(
                f"{shown(name)}: there is no module {shown(missing)}; looked among the installed "
                f"ones and in {' and '.join(dict.fromkeys(map(str, folders)))}"
            ) from None
        where = place_of(error)
        raise UserCodeError(
            f"{shown(name)} cannot be imported: {type(error).__name__}: {first_line(error)}"
            + (f" ({where})" if where else "")
        ) from error


def _check_not_pythons(root: str, name: str) -> None:
    """Check that the module ``root`` is not one of Python's own."""
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        raise UserCodeError(
            f"{shown(name)} is a part of Python itself and not a component; "
            "if it is a file of yours, rename it"
        )


def _check_namesake(root: str, name: str, folders: list[Path]) -> None:
    """Check that the imported module is the one in the experiment's folder.

    Two experiments of one process may each have a ``hooks.py``, and Python imports only one.
    """
    if root in _OWN_PACKAGES:
        return
    for folder in folders:
        meant = folder / root if (folder / root).is_dir() else folder / f"{root}.py"
        if not meant.exists():
            continue
        found = [Path(one).resolve() for one in _places(sys.modules[root])]
        if any(meant == one or meant in one.parents for one in found):
            return
        if not any(is_installed(one) for one in found):
            raise UserCodeError(
                f"{shown(name)}: the module {root} was imported from {found[0]}, not from {meant}; "
                "rename one of the two files"
            )
        return


def _places(module: ModuleType) -> list[str]:
    """Return the file of a module, or the folders of a namespace package."""
    file = getattr(module, "__file__", None)
    return [file] if file else list(getattr(module, "__path__", []))


def _own_names(holder: Any, path: str) -> list[str]:
    """Return the names that a module or class defines itself, at most `_MAX_NAMES`."""
    return [
        one
        for one, value in vars(holder).items()
        if not one.startswith("_") and getattr(value, "__module__", None) == path
    ][:_MAX_NAMES]


def _file(module: ModuleType) -> str:
    places = _places(module)
    return places[0] if places else module.__name__


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
