"""A target: what bytes from a stranger reach, and what must be true whatever they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.audit import watched

MIB = 1 << 20


def in_memory() -> Path:
    """Return a folder for a target's file: in memory if the system has such."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Target:
    """A part of fedmx that reads bytes which somebody else wrote.

    Attributes:
        name: also that of its folder in the corpus.
        read: reads the bytes; an AssertionError says that a promise on the result does not hold.
        errors: the documented errors; no other may leave `read`.
        opens: the only file that `read` opens, because opening it is its business.
        max_bytes: memory that reading may take beside 64 bytes for each byte of input.
    """

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    opens: Path | None = None
    max_bytes: int = 4 * MIB

    def accepts(self, data: bytes) -> bool:
        """Return whether the bytes are what the target reads.

        Raises:
            AssertionError: the target touched something outside, or broke a promise on the result.
        """
        with watched(self.opens) as events:
            try:
                self.read(data)
            except self.errors as error:
                accepted, words = False, str(error)
            else:
                accepted, words = True, ""
        assert not events, f"{self.name} touched what is not its business: {events}"
        assert "\n" not in words, f"{self.name}: an error of several lines: {words!r}"
        return accepted
