"""The import hook: what the modules of MXNet and gluoncv see when they import numpy.

A module of these two packages gets builtins of its own, in which `__import__` hands out a view of
numpy with the dropped names, and a stand-in for `distutils.version`. Python passes a module's
builtins on to its functions, so imports inside them are met, too. `sys.modules` and numpy itself
stay as they are, and so does every other module.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from layers.compute.engines.mxnet.loading.left_out import without_extras
from layers.compute.engines.mxnet.loading.names import dropped
from layers.compute.engines.mxnet.loading.versions import (
    check_docstrings,
    check_python,
    check_version,
    release,
)

PACKAGES = ("mxnet", "gluoncv")
# gluoncv imports PyTorch when it is installed, and refuses to load with PyTorch 2. Nothing of what
# fedmx uses needs it.
HIDDEN_FROM_GLUONCV = "torch"


class NumpyView(ModuleType):
    """numpy with the names that this version dropped. All else is numpy's own."""

    def __init__(self, numpy: ModuleType) -> None:
        super().__init__(numpy.__name__, numpy.__doc__)
        first, second, *_ = release(numpy.__version__)
        vars(self).update(vars(numpy))
        vars(self).update(dropped(numpy, (first, second)))

    def __getattr__(self, name: str) -> Any:
        """Return what numpy itself loads when it is first used, such as `numpy.testing`."""
        return getattr(sys.modules["numpy"], name)


@lru_cache(maxsize=1)
def numpy_view() -> NumpyView:
    """Return the view of numpy that MXNet and gluoncv share.

    Raises:
        UnsupportedVersion: this version of numpy is not known to work.
    """
    import numpy

    check_version("numpy", numpy.__version__)
    return NumpyView(numpy)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import a module for MXNet or gluoncv: the builtin `__import__`, apart from three names."""
    if level == 0:
        if name == "distutils.version" and fromlist:
            return importlib.import_module(f"{__package__}.distutils_version")
        if name == HIDDEN_FROM_GLUONCV and _package(globals) == "gluoncv":
            raise ModuleNotFoundError(f"{name} is hidden from gluoncv", name=name)
    found = builtins.__import__(name, globals, locals, fromlist or (), level)
    return numpy_view() if found is sys.modules.get("numpy") else found


def _package(namespace: Mapping[str, Any] | None) -> str:
    """Return the top-level package of a module's namespace."""
    return str((namespace or {}).get("__name__", "")).partition(".")[0]


@lru_cache(maxsize=1)
def own_builtins() -> dict[str, Any]:
    """Return the builtins that all modules of MXNet and gluoncv share."""
    return {**vars(builtins), "__import__": _import}


class SourceLoader(importlib.machinery.SourceFileLoader):
    """A loader of one module of MXNet or gluoncv."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code with the builtins that are made for it.

        Raises:
            UnsupportedVersion: Python, numpy, MXNet or gluoncv has a version that is not known to
                work.
        """
        if module.__name__ in PACKAGES:
            _check(module.__name__)
        module.__dict__["__builtins__"] = own_builtins()
        extras = without_extras() if module.__name__ == "mxnet" else nullcontext()
        with extras, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user can mend none of them, even if -W error is set
            super().exec_module(module)

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> CodeType:
        """Compile a module's source without warnings of escape sequences in its docstrings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().source_to_code(data, path, _optimize=_optimize)


def _check(package: str) -> None:
    """Check the versions of Python, numpy and a package that is about to be loaded."""
    from importlib import metadata  # it takes a while to load

    check_python()
    check_docstrings()
    numpy_view()
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return  # a build of its own, such as mxnet-cu112, or a checkout
    check_version(package, found)


class Finder:
    """A finder that finds MXNet and gluoncv where Python does, and has them loaded our way."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of MXNet or gluoncv; None for all others."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = SourceLoader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Have MXNet and gluoncv loaded with what they need. A second call does nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
