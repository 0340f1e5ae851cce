"""Log lines about clients: so many a minute for each, and a count of those that were left out."""

from __future__ import annotations

import logging
import time
from collections import Counter

WINDOW_S = 60.0
MOST_NAMES = 1000  # whose lines are counted one by one; the others are counted together
OTHERS = "others"


class ClientLog:
    """Writes to `log` at most `lines` lines in `WINDOW_S` about each client or address.

    The count of the lines that were left out follows when the time is over, by `flush`.
    """

    def __init__(self, log: logging.Logger, lines: int) -> None:
        self._log = log
        self._lines = lines
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._ends = time.monotonic() + WINDOW_S

    def info(self, who: str, text: str, *values: object) -> None:
        """Log an event that is expected: a text with the places of its values, as `logging`."""
        self._write(logging.INFO, who, text, values)

    def warning(self, who: str, text: str, *values: object) -> None:
        """Log an event that somebody should look at; see `info`."""
        self._write(logging.WARNING, who, text, values)

    def flush(self, *, now: bool = False) -> None:
        """Log how many lines were left out, if the time is over or `now` is set."""
        if not now and time.monotonic() < self._ends:
            return
        for who, number in self._left_out.items():
            self._log.warning("… and %s more lines about %s", f"{number:,}", who)
        self._written.clear()
        self._left_out.clear()
        self._ends = time.monotonic() + WINDOW_S

    def _write(self, level: int, who: str, text: str, values: tuple[object, ...]) -> None:
        self.flush()
        name = who if who in self._written or len(self._written) < MOST_NAMES else OTHERS
        self._written[name] += 1
        if self._written[name] <= self._lines:
            self._log.log(level, text, *values)
        else:
            self._left_out[name] += 1
