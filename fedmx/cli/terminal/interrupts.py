"""Ctrl-C and SIGTERM: the first ends the command in good order, one that comes later at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

PATIENCE_S = 2.0  # signals that follow so soon are the same wish, expressed twice
RETRY_S = 0.02
_CODE = 130
_SHOW_CURSOR = b"\x1b[?25h"

_first_s: float | None = None


class Interrupted(Exception):
    """A command ended in good order because of a signal; the text says what it leaves."""


def install() -> None:
    """Raise KeyboardInterrupt at the first SIGINT or SIGTERM, once, and wherever it is noticed.

    A signal that this process was started to ignore stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _again)
    sys.unraisablehook = _unraisable


def leave(code: int) -> NoReturn:
    """End the process now that everything is closed.

    Python would take itself down while signals have their first meaning back, might turn the code
    into a signal's, and would let what was half loaded talk about its end.
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
    if now_s - _first_s > PATIENCE_S:
        # Everything that must not be lost is on the disk, whole, at any time.
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            os.write(2, b"fedmx: ended at once\n")
        os._exit(_CODE)


def _again(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _unraisable(args: UnraisableHookArgs) -> None:
    """Try again shortly where Python would drop an interrupt: in a ``__del__`` or a C callback."""
    if issubclass(args.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
    elif _first_s is None:  # afterwards, what was left half done has nothing to tell
        sys.__unraisablehook__(args)
