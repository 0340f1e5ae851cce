"""The errors of the compute layer."""

from __future__ import annotations

from collections.abc import Iterable


class ComputeError(Exception):
    """Any error of the compute layer; one line on what was wrong, where, and what to do."""


class DataError(ComputeError):
    """A data set is missing or damaged, or does not have the shape that it must have."""


class DownloadError(DataError):
    """A file could not be downloaded, or what arrived is another file."""


class NormaliseError(DataError):
    """A normalisation is missing, or does not fit the data."""


class PartitionError(DataError):
    """A data set cannot be split among the clients as asked."""


def unknown(kind: str, name: str, names: Iterable[str], *, shown: int = 40) -> str:
    """Return one line with the nearest names and with the names that there are.

    Args:
        kind: what is named, such as "model".
        name: the unknown name.
        names: the names that there are.
        shown: how many of them the line lists at most.
    """
    from difflib import get_close_matches

    known = sorted(names)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ";"
    rest = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"unknown {kind} {name!r}{hint} there are: {', '.join(known[:shown])}{rest}"
