"""The log of fedmx, as plain lines on stderr."""

from __future__ import annotations

import logging

from rich.console import Console

from fedmx.cli.terminal.error_text import printable


class LogLines:
    """Shows log records while it is open, above the progress line if `console` has one."""

    def __init__(self, console: Console | None = None) -> None:
        self._handler = _Lines(console or Console(stderr=True, highlight=False))
        self._level = logging.NOTSET

    def __enter__(self) -> LogLines:
        root = logging.getLogger("fedmx")
        self._level = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self._handler)
        return self

    def __exit__(self, *exc_info: object) -> None:
        root = logging.getLogger("fedmx")
        root.removeHandler(self._handler)
        root.setLevel(self._level)


class _Lines(logging.Handler):
    """Prints log records as lines, without characters of peers that control a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self._console.print(printable(text), markup=False, soft_wrap=True)
