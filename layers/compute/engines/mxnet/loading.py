"""The import hook: what the modules of MXNet and gluoncv see when they import numpy.

A module of these two packages gets builtins of its own, in which `__import__` hands out a view of
numpy with the dropped names, and a stand-in for `distutils.version`. Python passes a module's
builtins on to its functions, so imports inside them are met, too. `sys.modules` and numpy itself
stay as they are, and so does every other module.
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

from layers.compute.errors import ComputeError

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
            return sys.modules[__name__]
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


WHEN_USED = ("scipy.stats", "scipy.sparse", "cv2", "requests")
"""What MXNet uses only inside functions."""

LEFT_OUT = ("sklearn", "sklearn.base")
"""The base class of `mx.model.FeedForward`, which MXNet can do without."""


class _WhenUsed(ModuleType):
    """It stands for a module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def without_extras() -> Iterator[None]:
    """Let imports of this block find stand-ins for `WHEN_USED`, and nothing for `LEFT_OUT`."""
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
    """A name that MXNet or gluoncv looks for in numpy.

    Attributes:
        gone: the first version of numpy that does not have the name, or has another thing there.
        make: takes numpy and returns what the name stood for before.
        why: where the name is looked for.
    """

    gone: tuple[int, int]
    make: Callable[[ModuleType], Any]
    why: str


def _value(value: Any) -> Callable[[ModuleType], Any]:
    return lambda numpy: value


def _function(name: str) -> Callable[[ModuleType], Any]:
    """Return what makes the value: the function of that name, under which numpy still has it."""
    return lambda numpy: getattr(numpy, name)


def _financial(name: str) -> Callable[[ModuleType], Any]:
    """Return what makes a function that can be looked up and not called."""

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


_IMPORT = "looked up when MXNet is imported"
_DISPATCH = "mxnet.numpy registers itself for it when MXNet is imported"
_GLUONCV = "gluoncv's models and metrics"

DROPPED_NAMES: dict[str, DroppedName] = {
    # Python's own types. In numpy 2, `bool` is numpy's type; MXNet means Python's.
    "bool": DroppedName((1, 24), _value(bool), _IMPORT),
    "int": DroppedName((1, 24), _value(int), _GLUONCV),
    "float": DroppedName((1, 24), _value(float), _GLUONCV),
    # Numbers.
    "Inf": DroppedName((2, 0), _value(float("inf")), "MXNet's event handlers and metrics"),
    "NAN": DroppedName((2, 0), _value(float("nan")), _IMPORT),
    "NINF": DroppedName((2, 0), _value(float("-inf")), _IMPORT),
    "NZERO": DroppedName((2, 0), _value(-0.0), _IMPORT),
    "NaN": DroppedName((2, 0), _value(float("nan")), _IMPORT),
    "PINF": DroppedName((2, 0), _value(float("inf")), _IMPORT),
    "PZERO": DroppedName((2, 0), _value(0.0), _IMPORT),
    # Functions that have another name today.
    "alltrue": DroppedName((2, 0), _function("all"), _IMPORT),
    "product": DroppedName((2, 0), _function("prod"), _DISPATCH),
    "round_": DroppedName((2, 0), _function("round"), _DISPATCH),
    "sometrue": DroppedName((2, 0), _function("any"), _DISPATCH),
    "in1d": DroppedName((2, 4), _in1d, _IMPORT),
    "msort": DroppedName((2, 0), _msort, _IMPORT),
    "trapz": DroppedName((2, 4), _function("trapezoid"), _IMPORT),
    # Functions that need only be there; until numpy 2, numpy itself has such stand-ins for them.
    **{
        name: DroppedName((1, 20), _financial(name), _IMPORT)
        for name in ("mirr", "npv", "pmt", "ppmt", "pv", "rate")
    },
    "compat": DroppedName(
        (2, 0), _value(SimpleNamespace(basestring=str)), "mxnet.numpy, for a string as an argument"
    ),
}


def dropped(numpy: ModuleType, version: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Yield the names that this version of numpy does not have, and what they stand for."""
    for name, entry in DROPPED_NAMES.items():
        if version >= entry.gone:
            yield name, entry.make(numpy)


class UnsupportedVersion(ComputeError, ImportError):
    """A version that is not known to work; one line on which, and what to install."""


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
    """Check that Python keeps docstrings, which MXNet works on when it is imported.

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
    """A version, compared by its release numbers.

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
