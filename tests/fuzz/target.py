"""A fuzz target: code that reads untrusted bytes, and its invariants."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.audit import watched

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
