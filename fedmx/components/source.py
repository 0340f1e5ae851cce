"""Where an experiment came from, so that a message can point at the line that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Where = tuple[str | int, ...]  # ("logic", "hooks", 0, "norm"), which users write logic.hooks.0.norm

OVERRIDDEN = 0  # in place of a line: the value came from --set


def dotted(where: Where) -> str:
    """A place in an experiment as users write it; a key that is not plain text is quoted."""
    parts = (str(part) for part in where)
    return ".".join(
        part if part.isprintable() and len(part) <= 60 else ascii(part[:60]) for part in parts
    )


@dataclass(frozen=True)
class Source:
    """An experiment's file and lines, and from where modules that it names may be imported."""

    name: str = ""  # as messages give it; empty for an experiment made in Python
    folder: Path | None = None  # the file's folder: modules beside the file can be named in it
    modules: frozenset[str] | None = None  # what may be imported by name; None is everything
    lines: Mapping[Where, int] = field(default_factory=dict)

    def problem(self, where: Where, text: str) -> str:
        """One line: file, line (the nearest that is known), dotted path and ``text``."""
        line = next(
            (self.lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self.lines),
            None,
        )
        path = dotted(where)
        if line == OVERRIDDEN:
            return f"--set {path}: {text}"
        place = self.name if line is None else f"{self.name}:{line}"
        return ": ".join(part for part in (place, path, text) if part)
