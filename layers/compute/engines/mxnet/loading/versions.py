"""The versions of Python, numpy, MXNet and gluoncv that are known to work, and what to install."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from layers.compute.errors import ComputeError


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
