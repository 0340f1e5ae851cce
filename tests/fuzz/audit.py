"""An audit hook that sees files, processes, imports, sockets, code and pickles."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
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
