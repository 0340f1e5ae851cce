"""An encoded message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Payload:
    """One encoded message: its buffers in order, its size in bytes, and its type's name.

    The buffers of arrays are the arrays' own memory: an array must not change until its message has
    been sent.
    """

    buffers: tuple[memoryview, ...]
    size: int
    name: str

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers)
