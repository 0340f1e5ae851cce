"""The standard streams of a command: what is closed leads nowhere, and no log ends a run."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def prepare_streams() -> None:
    """Open the standard streams that are closed, and let stderr lose what it cannot write.

    Python has None in place of a closed one (``fedmx run FILE 2>&-``), and gives its number to the
    next file that is opened.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115, it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    log = sys.stderr
    if log is sys.__stderr__ and isinstance(log, io.TextIOWrapper):
        log.flush()
        raw = _Lossy(log.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), log.encoding, log.errors, line_buffering=True
        )


class _Lossy(io.FileIO):
    """A file that takes whatever it is given, also if the disk is full or the reader has ended."""

    def write(self, content: Any) -> int:
        """Write bytes, or lose them."""
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes
