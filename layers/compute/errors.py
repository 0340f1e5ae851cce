"""The errors of the compute layer, and parts of their messages."""

from __future__ import annotations

from collections.abc import Iterable


class ComputeError(Exception):
    """Any error of the compute layer; one line: what was wrong, where, and what to do."""


class DataError(ComputeError):
    """A data set is missing or damaged, or does not have the expected shape."""


class DownloadError(DataError):
    """A file could not be downloaded, or its checksum is wrong."""


class NormaliseError(DataError):
    """A normalisation is missing, or does not fit the data."""


class PartitionError(DataError):
    """A data set cannot be split among the clients as asked."""


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, or the name of its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def unknown(kind: str, name: str, names: Iterable[str], *, shown: int = 40) -> str:
    """Return the message for an unknown name: the nearest names, and the known names.

    Args:
        kind: the kind of the named thing, such as "model".
        name: the unknown name.
        names: the known names.
        shown: how many known names are listed at most.
    """
    from difflib import get_close_matches

    known = sorted(names)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ";"
    rest = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"unknown {kind} {name!r}{hint} there are: {', '.join(known[:shown])}{rest}"
