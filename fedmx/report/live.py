"""The page of a run that still goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from threading import Thread

from fedmx.log import Log

log = Log("fedmx.report")

_TIMES_ITS_COST = 100
_IMPORTED_S = 0.05  # enough if another page has imported it already
_COST_S = 0.2  # of the first page, before it is known


class LivePage:
    """Rewrites a run's page while the run goes on.

    An error is logged once, and does not end the run.

    Args:
        write: writes the page.
        every: rounds from one writing to the next; None: as often as writing takes at most a
            hundredth of the time.
    """

    def __init__(self, write: Callable[[], None], every: int | None = None) -> None:
        self._write, self._every = write, every
        self._cost_s, self._written_s = _COST_S, time.monotonic()
        self._warned = False
        self._importing: Thread | None = None

    def show(self, round: int) -> None:
        """Write the page after a round, if it is due."""
        began_s = time.monotonic()
        if self._every is None:
            due = began_s - self._written_s >= _TIMES_ITS_COST * self._cost_s
        else:
            due = round % self._every == 0
        if not due or (self._every is None and not self._has_matplotlib()):
            return
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - the run is worth more than its page
            if not self._warned:
                log.warning(
                    "page_not_written",
                    "the page of the run was not written, and the run goes on: {reason}",
                    reason=error,
                )
            self._warned = True
        self._written_s = time.monotonic()
        self._cost_s = self._written_s - began_s

    def _has_matplotlib(self) -> bool:
        """Whether the page can be drawn now; from a cold disk the import takes seconds."""
        if self._importing is None:
            self._importing = Thread(target=import_module, args=["matplotlib.figure"])
            self._importing.start()
            self._importing.join(_IMPORTED_S)
        return not self._importing.is_alive()
