"""The log of fedmx: each line is an event with named fields, for people and for programs."""

from __future__ import annotations

import logging


class Log:
    """A logger whose lines are events.

    A record's message is the text with its fields filled in. The attributes ``event`` and
    ``fields`` of the record hold the event's name and the values.

    Args:
        name: the name of the logger in `logging`.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, text: str, /, **fields: object) -> None:
        """Log an expected event.

        Args:
            event: its name, in snake_case; programs know it by this name.
            text: a format string (see `str.format`) over the fields. Values, such as a peer's
                text, belong in the fields.
            **fields: the values, by name.
        """
        self.write(logging.INFO, event, text, fields)

    def warning(self, event: str, text: str, /, **fields: object) -> None:
        """Log an event that needs attention; see `info`."""
        self.write(logging.WARNING, event, text, fields)

    def exception(self, event: str, text: str, /, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled; see `info`."""
        self.write(logging.ERROR, event, text, fields, traceback=True)

    def write(
        self,
        level: int,
        event: str,
        text: str,
        fields: dict[str, object],
        *,
        traceback: bool = False,
    ) -> None:
        """Log an event at a level of `logging`; see `info`."""
        if self._logger.isEnabledFor(level):
            extra = {"event": event, "fields": fields}
            self._logger.log(level, text.format(**fields), extra=extra, exc_info=traceback)
