"""Log lines about clients: a limit per minute and client, and a count of suppressed lines."""

from __future__ import annotations

import logging
import time
from collections import Counter

from fedmx.log import Log

WINDOW_S = 60.0
MOST_NAMES = 1000  # whose lines are counted one by one; the others are counted together
OTHERS = "others"


class ClientLog:
    """Writes to `log` at most `lines` lines in `WINDOW_S` about each client or address.

    The count of the lines that were left out follows when the time is over, by `flush`.
    """

    def __init__(self, log: Log, lines: int) -> None:
        self._log = log
        self._lines = lines
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._ends = time.monotonic() + WINDOW_S

    def info(self, who: str, event: str, text: str, /, **fields: object) -> None:
        """Log an expected event about a client or address; see `Log.info`."""
        self._write(logging.INFO, who, event, text, fields)

    def warning(self, who: str, event: str, text: str, /, **fields: object) -> None:
        """Log an event about a client or address that needs attention; see `Log.info`."""
        self._write(logging.WARNING, who, event, text, fields)

    def flush(self, *, now: bool = False) -> None:
        """Log how many lines were left out, if the time is over or `now` is set."""
        if not now and time.monotonic() < self._ends:
            return
        for who, number in self._left_out.items():
            self._log.warning(
                "lines_left_out",
                "further lines about {who} are left out: {lines}",
                lines=f"{number:,}",
                who=who,
            )
        self._written.clear()
        self._left_out.clear()
        self._ends = time.monotonic() + WINDOW_S

    def _write(
        self, level: int, who: str, event: str, text: str, fields: dict[str, object]
    ) -> None:
        self.flush()
        name = who if who in self._written or len(self._written) < MOST_NAMES else OTHERS
        self._written[name] += 1
        if self._written[name] <= self._lines:
            self._log.write(level, event, text, fields)
        else:
            self._left_out[name] += 1
