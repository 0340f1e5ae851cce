"""The output of a command: results on stdout; errors, events and the log on stderr."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedmx.components import engines
from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def error_text(error: BaseException) -> str | None:
    """Return an error's text for the user, or None if only a traceback can help.

    This imports no layer: only a loaded module can have raised the error.
    """
    text = printable(str(error).strip() or type(error).__name__)
    if _is_instance(error, "fedmx.errors", "FedmxError"):
        return text  # a line for each problem of an experiment
    in_part = any(
        _is_instance(error, "layers.logic.errors", name) for name in ("ClientFailed", "PartFailed")
    )
    if in_part and error.__cause__ is not None:
        from fedmx.components.user_code import place_of

        cause = error.__cause__
        # A worker process has found the place already.
        place = getattr(cause, "place", None) or place_of(cause)
        return f"{_first_line(text)}{f' ({place})' if place else ''}; --debug shows the traceback"
    for layer in ("network", "logic", "compute"):
        if _is_instance(error, f"layers.{layer}.errors", f"{layer.capitalize()}Error"):
            return _first_line(text)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return not_installed(error.name.partition(".")[0])
    if isinstance(error, OSError):
        if error.filename is None or error.strerror is None:
            return _first_line(text)
        return f"{printable(str(error.filename))}: {error.strerror}; --debug shows where"
    if isinstance(error, MemoryError):
        return "there is not enough memory; use a smaller model, batch or data set"
    return None


def not_installed(package: str) -> str:
    """Return the text about a missing package."""
    if package in (engines.MXNET, engines.TORCH):
        return engines.not_installed(package)
    return f"the package {package} is not installed; install fedmx with pip, or `make venv`"


def printable(text: str) -> str:
    """Replace the characters of a text that control a terminal."""
    return "".join(one if one.isprintable() or one == "\n" else "�" for one in text)


def one_line(text: str) -> str:
    """Return a text as one line: a line break becomes a space."""
    return printable(" ".join(text.splitlines()))


def _is_instance(error: BaseException, module: str, name: str) -> bool:
    """Return whether an error is of a class, without importing the class's module."""
    root = getattr(sys.modules.get(module), name, None)
    return root is not None and isinstance(error, root)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else text


def show_table(table: Table) -> None:
    """Print a table without blanks at the ends of its lines."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table, markup=False)
    # Write to the file: the console would wrap lines within escape codes.
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")


def show_text(lines: Iterable[str]) -> None:
    """Print lines; on a terminal, break long lines between words."""
    import typer

    for line in lines:
        if sys.stdout.isatty():
            line = _broken(line, max(shutil.get_terminal_size().columns, 20))
        typer.echo(line)


def _broken(line: str, columns: int) -> str:
    """Break a line at a number of columns; all lines keep the indent of the first."""
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    wrapper = textwrap.TextWrapper(
        columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(line)


OPTION = "--log-format"
_format = "text"
_given = False


def take_format(words: Sequence[str]) -> list[str]:
    """Set the format that a command line asks for; return the other words.

    Raises:
        FedmxError: there is no such format.
    """
    global _format, _given
    _format = "text"
    rest: list[str] = []
    given: list[str] = []
    left = iter(words)
    for word in left:
        if word == OPTION:
            given.append(next(left, ""))
        elif word.startswith(f"{OPTION}="):
            given.append(word.partition("=")[2])
        else:
            rest.append(word)
    for one in given:
        if one not in ("text", "timed", "json"):
            raise FedmxError(f"{OPTION} {one!r}: must be text, timed or json")
        _format = one
    _given = bool(given)
    return rest


def begin_log() -> None:
    """From now on, start each line with its time, as a server and its clients do.

    No effect if the user chose a format, or in systemd's journal, which has its own times.
    """
    global _format
    if not _given and not _is_in_journal():
        _format = "timed"


def _is_in_journal() -> bool:
    """Return whether stderr goes to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        file = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):  # closed, or not a file
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"


def is_json() -> bool:
    """Return whether stderr shows JSON."""
    return _format == "json"


def is_live(console: Console) -> bool:
    """Return whether stderr, which the console writes to, can show lines that change."""
    return sys.stderr.isatty() and not is_json() and not console.is_dumb_terminal


def timed(text: str, time_s: float | None = None) -> str:
    """Return a line of stderr, after its time (UTC) if the format is ``timed``.

    Args:
        text: the line.
        time_s: the time in seconds since 1970; None: now.
    """
    if _format != "timed":
        return text
    utc = datetime.timezone.utc
    now = (
        datetime.datetime.now(utc)
        if time_s is None
        else datetime.datetime.fromtimestamp(time_s, utc)
    )
    return f"{now:%Y-%m-%dT%H:%M:%SZ} {text}"


def say(event: str, text: str, **fields: Any) -> None:
    """Write a line to stderr: the text, or an object with the event and its fields."""
    import typer  # not at the top: it may not be installed, and this module reports that

    typer.echo(line("info", event, text, fields) if is_json() else timed(text), err=True)


def line(
    level: str, event: str, text: str, fields: Mapping[str, Any], traceback: str | None = None
) -> str:
    """Return an event as a JSON object in one line; text of a peer cannot break it."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    values = {name: _plain(value) for name, value in fields.items()}
    found = {"time": now, "level": level, "event": event, "fields": values, "text": text}
    if traceback is not None:
        found["traceback"] = traceback
    return json.dumps(found, default=str)


class JsonLines(logging.Handler):
    """Writes each log record as one object."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        event = getattr(record, "event", "note")  # a logger other than `Log` names no event
        fields = getattr(record, "fields", None) or {"logger": record.name}
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        text = record.getMessage()
        sys.stderr.write(line(record.levelname.lower(), event, text, fields, trace) + "\n")
        sys.stderr.flush()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class LogLines:
    """Shows log records inside a with statement, above the progress line if `console` has one."""

    def __init__(self, console: Console | None = None) -> None:
        self._handler: logging.Handler = JsonLines() if is_json() else _Lines(console)
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
    """Prints each log record as one line; text of a peer cannot break it.

    Only a traceback has more lines; they are indented, so none looks like a record.
    """

    def __init__(self, console: Console | None) -> None:
        from rich.console import Console

        super().__init__()
        self._console = console or Console(stderr=True, highlight=False)

    def emit(self, record: logging.LogRecord) -> None:
        text = one_line(record.getMessage())
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        text = timed(text, record.created)
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            text += "\n" + textwrap.indent(printable(trace), "    ", lambda line: True)
        self._console.print(text, markup=False, soft_wrap=True)
