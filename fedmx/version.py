"""The version of fedmx, in the one place where it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable

__version__ = "0.1.0"


FEATURE = f"fedmx-{__version__}"
"""What a client names among the features of its session, so that a server knows its version."""


def named_in(features: Iterable[str]) -> str | None:
    """Return the version that a client names in the features of its session; None: it does not."""
    form = r"fedmx-([0-9]{1,5}(?:\.[0-9A-Za-z+-]{1,20}){1,4})"
    named = [found[1] for one in features if (found := re.fullmatch(form, one))]
    return named[0] if len(named) == 1 else None


def fits(other: str) -> bool:
    """Return whether another version of fedmx is of the same minor version as this one."""
    return other.split(".")[:2] == __version__.split(".")[:2]


def serves(client: str) -> bool:
    """Return whether a server of this version serves clients of another: also of the minor before.

    So a server is upgraded first, and then one client after the other.
    """
    major, minor = __version__.split(".")[:2]
    return fits(client) or client.split(".")[:2] == [major, str(int(minor) - 1)]
