"""The source of an experiment, so that a message can point at the line that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Where = tuple[str | int, ...]
"""A place in an experiment: ("logic", "hooks", 0, "norm") is logic.hooks.0.norm for users."""

OVERRIDDEN = 0
"""The line number of a value that came from --set."""


def dotted(where: Where) -> str:
    """Return a place in an experiment as users write it; a key that is not plain text is quoted."""
    parts = (str(part) for part in where)
    return ".".join(
        part if part.isprintable() and len(part) <= 60 else ascii(part[:60]) for part in parts
    )


@dataclass(frozen=True)
class Source:
    """The file of an experiment, its lines, and the modules that it may import.

    Attributes:
        name: the file's name for messages; empty for an experiment made in Python.
        folder: the file's folder; the experiment can name modules in it.
        modules: the modules that the experiment may import, with their submodules; None: all.
        lines: the line of each place, from 1, or `OVERRIDDEN`.
    """

    name: str = ""
    folder: Path | None = None
    modules: frozenset[str] | None = None
    lines: Mapping[Where, int] = field(default_factory=dict)

    def line_of(self, where: Where) -> int | None:
        """Return the line of a place, or of the nearest place above it whose line is known."""
        above = (where[:n] for n in range(len(where), -1, -1))
        return next((self.lines[place] for place in above if place in self.lines), None)

    def problem(self, where: Where, text: str) -> str:
        """Return a message of one line: file, line, dotted path and ``text``.

        The line is that of the place, or of the nearest place above it whose line is known.
        """
        line, path = self.line_of(where), dotted(where)
        if line == OVERRIDDEN:
            return f"--set {path}: {text}"
        place = self.name if line is None else f"{self.name}:{line}"
        return ": ".join(part for part in (place, path, text) if part)
