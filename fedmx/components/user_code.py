"""Imports what an experiment names as ``package.module:Name``, and finds the line that failed."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmx.components.text import first_line, shown, unknown
from fedmx.errors import FedmxError

_OURS = ("fedmx", "layers")


class UserCodeError(FedmxError):
    """A reference to a user's own code leads nowhere, or to what no experiment may name."""


def imported(name: str, folder: Path | None, modules: Collection[str] | None) -> Any:
    """The class, function or object at ``name``.

    Modules are found as Python finds them, then in ``folder``, then in the working directory.
    With ``modules`` only these and what is inside them are imported. Python's own modules are not
    components, so that an experiment file cannot name ``os:system``.
    """
    path, _, qualified = name.partition(":")
    parts, attributes = path.split("."), qualified.split(".")
    if not all(part.isidentifier() and not part.startswith("_") for part in parts + attributes):
        raise UserCodeError(f"{shown(name)} is not of the form package.module:Name")
    if modules is not None and not any(
        path == one or path.startswith(f"{one}.") for one in modules
    ):
        raise UserCodeError(
            f"{shown(name)} names code of the module {shown(path)}, which is not among "
            f"those allowed here ({', '.join(sorted(modules)) or 'none'}); "
            f"if it is yours, allow it: fedmx client --module {path}"
        )
    _refuse_pythons_own(parts[0], name)
    folders = [found.resolve() for found in (folder, Path.cwd()) if found is not None]
    module = _module(path, name, folders)
    _refuse_a_namesake(parts[0], name, folders)
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
        _refuse_pythons_own(str(getattr(found, "__module__", None) or "").partition(".")[0], name)
    return found


def place_of(error: BaseException) -> str:
    """``FILE:LINE`` where an exception was raised, in a user's own file rather than in a library.

    Empty when no file is known.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and Path(frame.filename).parent not in _NOT_THE_USERS
    ]
    own = [frame for frame in frames if not _installed(Path(frame[0]))]
    file, line = (own or frames or [("", 0)])[-1]
    return f"{file}:{line}" if file else ""


_NOT_THE_USERS = (Path(__file__).parent, Path(importlib.__file__).parent)


def _installed(path: Path) -> bool:
    """Whether a file is a part of Python or of an installed package."""
    homes = {Path(sysconfig.get_path(one)) for one in ("stdlib", "purelib", "platlib")}
    return any(home in path.parents or home.resolve() in path.parents for home in homes)


def _module(path: str, name: str, folders: list[Path]) -> ModuleType:
    for folder in folders:
        # At the end: a user's file must not come before an installed module of the same name.
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


def _refuse_pythons_own(root: str, name: str) -> None:
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        raise UserCodeError(
            f"{shown(name)} is a part of Python itself and no component; "
            "if it is a file of yours, give it another name"
        )


def _refuse_a_namesake(root: str, name: str, folders: list[Path]) -> None:
    """Two experiments of one process may each have a ``hooks.py``: never take the other's."""
    if root in _OURS:
        return
    for folder in folders:
        meant = folder / root if (folder / root).is_dir() else folder / f"{root}.py"
        if not meant.exists():
            continue
        found = [Path(one).resolve() for one in _places(sys.modules[root])]
        if any(meant == one or meant in one.parents for one in found):
            return
        if not any(_installed(one) for one in found):
            raise UserCodeError(
                f"{shown(name)}: the module {root} is that of {found[0]}, not {meant}; "
                "give one of the two another name"
            )
        return


def _places(module: ModuleType) -> list[str]:
    file = getattr(module, "__file__", None)
    return [file] if file else list(getattr(module, "__path__", []))


def _own_names(holder: Any, path: str) -> list[str]:
    return [
        one
        for one, value in vars(holder).items()
        if not one.startswith("_") and getattr(value, "__module__", None) == path
    ][:40]


def _file(module: ModuleType) -> str:
    places = _places(module)
    return places[0] if places else module.__name__
