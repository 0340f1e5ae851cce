"""The log of fedmx on stderr, as plain lines or as JSON."""

from __future__ import annotations

import logging
import textwrap

from rich.console import Console

from fedmx.cli.terminal.error_text import one_line, printable
from fedmx.cli.terminal.json_lines import JsonLines, is_json, timed


class LogLines:
    """Shows log records while it is open, above the progress line if `console` has one."""

    def __init__(self, console: Console | None = None) -> None:
        self._handler: logging.Handler = (
            JsonLines() if is_json() else _Lines(console or Console(stderr=True, highlight=False))
        )
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
    """Prints each log record as one line, whatever a peer wrote into it.

    Only a traceback has further lines; they are indented, so that none of them looks like a record.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = one_line(record.getMessage())
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        text = timed(text, record.created)
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            text += "\n" + textwrap.indent(printable(trace), "    ", lambda line: True)
        self._console.print(text, markup=False, soft_wrap=True)
