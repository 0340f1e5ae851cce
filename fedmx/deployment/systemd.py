"""Messages to systemd of a service of Type=notify (sd_notify); without systemd nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Tell systemd the state of this service."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            end.send(state.encode(), socket.MSG_DONTWAIT)


class Watchdog:
    """Tells systemd that the thread which calls `alive` goes on, as often as it wants to know."""

    def __init__(self) -> None:
        wanted = os.environ.get("WATCHDOG_USEC", "")
        self._every_s = int(wanted) / 2e6 if wanted.isdecimal() else None
        self._last_s = -float("inf")

    def alive(self) -> None:
        """Tell it, at most twice in the time of WatchdogSec."""
        now_s = time.monotonic()
        if self._every_s is not None and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            notify("WATCHDOG=1")
