"""Fuzz targets, their invariants, and the audit hook that detects side effects."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORBIDDEN = frozenset({"open", "import", "exec", "compile"})
FAMILIES = (
    "ctypes.",
    "glob.",
    "marshal.",
    "os.",
    "pickle.",
    "shutil.",
    "socket.",
    "subprocess.",
    "tempfile.",
    "urllib.",
)


class _Watch:
    """The only audit hook of this process: Python cannot remove a hook."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] | None = None
        self.opens: str | None = None
        self.added = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        events = self.events
        if events is None or not (event in FORBIDDEN or event.startswith(FAMILIES)):
            return
        if event == "open" and self.opens is not None and str(arguments[0]) == self.opens:
            return
        events.append((event, repr(arguments)[:200]))


_WATCH = _Watch()


@contextlib.contextmanager
def watched(opens: Path | None = None) -> Iterator[list[tuple[str, str]]]:
    """Collect the forbidden events of this process; opening the file `opens` is allowed."""
    if not _WATCH.added:
        sys.addaudithook(_WATCH)
        _WATCH.added = True
    events: list[tuple[str, str]] = []
    _WATCH.opens, _WATCH.events = None if opens is None else str(opens), events
    try:
        yield events
    finally:
        _WATCH.events = None


MIB = 1 << 20


def in_memory() -> Path:
    """Return a folder for a target's file, in memory if possible."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Target:
    """A part of fedmx that reads untrusted bytes.

    Attributes:
        name: also of its folder in the corpus.
        read: reads the bytes; an AssertionError reports a violated invariant.
        errors: the documented errors; `read` may raise no other.
        opens: the only file that `read` may open.
        max_bytes: memory that reading may use, besides 64 bytes for each byte of input.
    """

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    opens: Path | None = None
    max_bytes: int = 4 * MIB

    def accepts(self, data: bytes) -> bool:
        """Return whether the target accepts the bytes.

        Raises:
            AssertionError: the target had a side effect, or violated an invariant.
        """
        with watched(self.opens) as events:
            try:
                self.read(data)
            except self.errors as error:
                accepted, words = False, str(error)
            else:
                accepted, words = True, ""
        assert not events, f"{self.name} had side effects: {events}"
        assert "\n" not in words, f"{self.name}: an error of several lines: {words!r}"
        return accepted
