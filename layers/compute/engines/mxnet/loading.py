"""Loading of MXNet 1.9.1 and gluoncv 0.10.5 on newer versions of Python and numpy, and quickly.

Both need names that numpy dropped, and `distutils`, which Python dropped in 3.12. An import hook
gives the modules of these two packages their own builtins, whose `__import__` returns a view of
numpy with the dropped names, and this module as `distutils.version`. A module's functions have its
builtins too, so this also works for imports inside functions. `sys.modules`, numpy and all other
modules do not change. Packages that MXNet imports, but training does not use, are imported when
they are used. This module does not import MXNet.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import importlib.machinery
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, total_ordering
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from layers.compute.engines.mxnet.operators import write_when_called
from layers.compute.engines.mxnet.runtime import start_quietly
from layers.compute.errors import ComputeError

PACKAGES = ("mxnet", "gluoncv")
# gluoncv imports PyTorch if it is installed, and refuses to load with PyTorch 2. fedmx does not use
# the parts of gluoncv that need it.
HIDDEN_FROM_GLUONCV = "torch"


class NumpyView(ModuleType):
    """numpy with the names that this version dropped."""

    def __init__(self, numpy: ModuleType) -> None:
        super().__init__(numpy.__name__, numpy.__doc__)
        first, second, *_ = release(numpy.__version__)
        vars(self).update(vars(numpy))
        vars(self).update(dropped(numpy, (first, second)))

    def __getattr__(self, name: str) -> Any:
        """Return a name that numpy loads on first use, such as `numpy.testing`."""
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
    """Import a module for MXNet or gluoncv: the builtin `__import__`, except for three names."""
    if level == 0:
        if name == "distutils.version" and fromlist:
            return sys.modules[__name__]  # for LooseVersion and StrictVersion
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
        """Run a module's code with `own_builtins`.

        Raises:
            UnsupportedVersion: Python, numpy, MXNet or gluoncv has a version that is not known to
                work.
        """
        if module.__name__ in PACKAGES:
            _check(module.__name__)
        module.__dict__["__builtins__"] = own_builtins()
        extras = without_extras() if module.__name__ == "mxnet" else nullcontext()
        with extras, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user cannot fix them, even with -W error
            super().exec_module(module)
        if module.__name__ == "mxnet.base":
            write_when_called(module)
        if module.__name__ == "mxnet":
            start_quietly(module)

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> CodeType:
        """Compile a module's source without warnings of escape sequences in its docstrings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().source_to_code(data, path, _optimize=_optimize)


def _check(package: str) -> None:
    """Check the versions of Python, numpy and a package that is about to be loaded."""
    from importlib import metadata  # slow to import

    check_python()
    check_docstrings()
    numpy_view()
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return  # another build, such as mxnet-cu112, or a checkout
    check_version(package, found)


class Finder:
    """A finder that finds MXNet and gluoncv as Python does, with `SourceLoader` as their loader."""

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
    """Install the import hook. A second call does nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


WHEN_USED = ("scipy.stats", "scipy.sparse", "cv2", "requests")
"""Modules that MXNet uses only inside functions."""

LEFT_OUT = ("sklearn", "sklearn.base")
"""Modules for the base class of `mx.model.FeedForward`, which MXNet can do without."""


class _WhenUsed(ModuleType):
    """A stand-in for a module, which is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def without_extras() -> Iterator[None]:
    """In this block, imports find stand-ins for `WHEN_USED`, and do not find `LEFT_OUT`.

    scikit-learn (with pandas), parts of SciPy, OpenCV and requests take longer than MXNet itself.
    """
    placed: dict[str, ModuleType | None] = {}
    for name in WHEN_USED:
        if name not in sys.modules and _installed(name):
            placed[name] = _WhenUsed(name)
    placed |= {name: None for name in LEFT_OUT if name not in sys.modules}
    modules: dict[str, Any] = sys.modules
    modules.update(placed)
    collects = gc.isenabled()
    gc.disable()  # an import makes many objects and no garbage
    try:
        yield
    finally:
        if collects:
            gc.enable()
        for name, module in placed.items():
            if name in modules and modules[name] is module:
                del modules[name]


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


class DroppedName(NamedTuple):
    """A name that MXNet or gluoncv uses of numpy.

    Attributes:
        gone: the first version of numpy without the name, or with another meaning of it.
        make: takes numpy and returns the former meaning of the name.
    """

    gone: tuple[int, int]
    make: Callable[[ModuleType], Any]


def _financial(name: str) -> Callable[[ModuleType], Any]:
    """Return a maker of a function that can be looked up, but not called."""

    def absent(*_arguments: Any, **_named: Any) -> NoReturn:
        raise RuntimeError(f"numpy has no {name} since 1.20; the package numpy-financial has it")

    return lambda numpy: absent


def _in1d(numpy: ModuleType) -> Callable[..., Any]:
    """Return numpy's `in1d`: `isin` of the first argument as a flat array."""

    def in1d(ar1: Any, ar2: Any, *arguments: Any, **named: Any) -> Any:
        return numpy.isin(numpy.asarray(ar1).ravel(), ar2, *arguments, **named)

    return in1d


def _msort(numpy: ModuleType) -> Callable[..., Any]:
    """Return numpy's `msort`: a copy that is sorted along the first axis."""
    return lambda a: numpy.sort(a, axis=0)


DROPPED_NAMES: dict[str, DroppedName] = {
    # Python's types; in numpy 2, `bool` is numpy's type, and MXNet means Python's.
    **{
        kind.__name__: DroppedName((1, 24), lambda numpy, kind=kind: kind)  # type: ignore[misc]
        for kind in (bool, int, float)
    },
    # Numbers.
    **{
        name: DroppedName((2, 0), lambda numpy, text=text: float(text))  # type: ignore[misc]
        for name, text in (
            *(("Inf", "inf"), ("PINF", "inf"), ("NINF", "-inf"), ("NAN", "nan"), ("NaN", "nan")),
            *(("PZERO", "0"), ("NZERO", "-0")),
        )
    },
    # Functions with another name.
    "alltrue": DroppedName((2, 0), lambda numpy: numpy.all),
    "product": DroppedName((2, 0), lambda numpy: numpy.prod),
    "round_": DroppedName((2, 0), lambda numpy: numpy.round),
    "sometrue": DroppedName((2, 0), lambda numpy: numpy.any),
    "in1d": DroppedName((2, 4), _in1d),
    "msort": DroppedName((2, 0), _msort),
    "trapz": DroppedName((2, 4), lambda numpy: numpy.trapezoid),
    # Functions that are looked up, but not called; before numpy 2, numpy has such stand-ins itself.
    **{
        name: DroppedName((1, 20), _financial(name))
        for name in ("mirr", "npv", "pmt", "ppmt", "pv", "rate")
    },
    # For a string as an argument of mxnet.numpy.
    "compat": DroppedName((2, 0), lambda numpy: SimpleNamespace(basestring=str)),
}


def dropped(numpy: ModuleType, version: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Yield the names that this version of numpy does not have, and their values."""
    for name, entry in DROPPED_NAMES.items():
        if version >= entry.gone:
            yield name, entry.make(numpy)


class UnsupportedVersion(ComputeError, ImportError):
    """A version that is not known to work; one line: which one, and what to install."""


class Range(NamedTuple):
    """The versions of one package that are known to work.

    Attributes:
        first: the first of them.
        end: the first version after them.
        install: what to install or use instead of another version.
    """

    first: tuple[int, ...]
    end: tuple[int, ...]
    install: str

    def holds(self, version: tuple[int, ...]) -> bool:
        """Return whether a version is one of them."""
        return self.first <= version < self.end


KNOWN = {
    "Python": Range((3, 10), (3, 14), "use Python 3.10 to 3.13"),
    "numpy": Range((1, 21), (3,), "pip install 'numpy>=1.21,<3'"),
    # The only release of MXNet 1.9 that has a wheel for every Python 3.
    "mxnet": Range((1, 9, 1), (1, 9, 2), "pip install --no-deps mxnet==1.9.1"),
    # This is the version that pip shows; `gluoncv.__version__` says 0.11.0.
    "gluoncv": Range((0, 10, 5), (0, 11), "pip install gluoncv==0.10.5.post0"),
}


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 1, 0) of `2.1.0rc1`."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def check_version(name: str, version: str) -> None:
    """Check that a version of a name in `KNOWN` is known to work.

    Raises:
        UnsupportedVersion: it is not.
    """
    known = KNOWN[name]
    if not known.holds(release(version)):
        raise UnsupportedVersion(
            f"{name} {version} is not known to work with MXNet {_text(KNOWN['mxnet'].first)}; "
            f"{known.install}"
        )


def check_python() -> None:
    """Check that this Python is known to work.

    Raises:
        UnsupportedVersion: it is not.
    """
    check_version("Python", _text(sys.version_info[:3]))


def check_docstrings() -> None:
    """Check that Python keeps docstrings, which MXNet uses when it is imported.

    Raises:
        UnsupportedVersion: it does not.
    """
    if sys.flags.optimize >= 2:
        raise UnsupportedVersion(
            "MXNet cannot be imported without docstrings (python -OO); leave out -OO, or set "
            "PYTHONOPTIMIZE to 1 or 0"
        )


def _text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


@total_ordering
class LooseVersion:
    """A version as in `distutils.version`, compared by its release numbers.

    Args:
        vstring: the version's text, such as `1.9.1`.
    """

    def __init__(self, vstring: str) -> None:
        self.vstring = vstring
        self.version = release(vstring)

    def __str__(self) -> str:
        return self.vstring

    def __hash__(self) -> int:
        return hash(self.version)

    def __eq__(self, other: object) -> bool:
        return self.version == _numbers(other)

    def __lt__(self, other: object) -> bool:
        return self.version < _numbers(other)


class StrictVersion(LooseVersion):
    """The same; MXNet compares numpy's version with it."""


def _numbers(other: object) -> tuple[int, ...]:
    return other.version if isinstance(other, LooseVersion) else release(str(other))
