"""``--log-format``: what stderr shows: text, text with times, or one JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from fedmx.errors import FedmxError
from fedmx.monitoring.events import EVENTS

OPTION = "--log-format"
_format = "text"
_given = False


def take_format(words: Sequence[str]) -> list[str]:
    """Set the format that the words of a command ask for; return the other words.

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
    """Put the time before each line from now on, as a server and its clients do.

    Not if a format was asked for, and not in systemd's journal, which has times of its own.
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


def timed(text: str, time_s: float | None = None) -> str:
    """Return a line of stderr, behind its time (UTC) if the format is ``timed``.

    Args:
        text: the line.
        time_s: when it was said, in seconds since 1970; None: now.
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
    typer.echo(line("info", event, text, fields) if is_json() else timed(text), err=True)


def line(
    level: str, event: str, text: str, fields: Mapping[str, Any], traceback: str | None = None
) -> str:
    """Return an event as a JSON object in one line, whatever a peer wrote into it."""
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
        event, names = EVENTS.get(str(record.msg), ("note", ()))
        values = record.args if isinstance(record.args, tuple) else ()
        fields = dict(zip(names, values, strict=False)) or {"logger": record.name}
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        text = record.getMessage()
        sys.stderr.write(line(record.levelname.lower(), event, text, fields, trace) + "\n")
        sys.stderr.flush()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
