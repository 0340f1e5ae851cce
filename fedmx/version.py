"""The version of fedmx, in the one place where it is written."""

from __future__ import annotations

__version__ = "0.1.0"


def fits(other: str) -> bool:
    """Return whether another version of fedmx is of the same minor version as this one."""
    return other.split(".")[:2] == __version__.split(".")[:2]
