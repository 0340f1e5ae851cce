"""Ctrl-C and SIGTERM: the first signal ends the command cleanly, a later one at once.

SIGHUP lets a service look at its certificates.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from fedmx.cli.terminal.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

REPEAT_S = 2.0  # a second signal within this time is a repetition of the first
RETRY_S = 0.02
_SHOW_CURSOR = b"\x1b[?25h"

_first_s: float | None = None


class Interrupted(Exception):
    """A signal ended a command cleanly; the text says how to go on."""


def install() -> None:
    """Set the signal handlers: the first SIGINT or SIGTERM raises KeyboardInterrupt.

    A signal that the process ignored from its start stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _raise_again)
    sys.unraisablehook = _retry_interrupt


@contextlib.contextmanager
def on_hangup(call: Callable[[], None]) -> Iterator[None]:
    """Call something at each SIGHUP, inside a with statement.

    At a terminal, SIGHUP says that the terminal is gone and ends the command as before.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        yield
        return
    before = signal.signal(signal.SIGHUP, lambda number, frame: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def exit_process(code: int) -> NoReturn:
    """End the process at once; everything must be closed.

    Python's own exit resets the signal handlers, may change the exit code to a signal's, and lets
    half-loaded modules write messages.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _first_s
    now_s = time.monotonic()
    if _first_s is None:
        _first_s = now_s
        raise KeyboardInterrupt
    if now_s - _first_s > REPEAT_S:
        # Nothing is lost: the records and checkpoints on the disk are whole at any time.
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            os.write(2, b"fedmx: ended at once\n")
        os._exit(INTERRUPTED)


def _raise_again(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _retry_interrupt(args: UnraisableHookArgs) -> None:
    """Raise an interrupt again soon if Python drops it, in a ``__del__`` or a C callback."""
    if issubclass(args.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
    elif _first_s is None:  # after an interrupt, errors of half-done work are not shown
        sys.__unraisablehook__(args)
