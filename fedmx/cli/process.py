"""The process of a command: its streams, exit codes, signals and imports."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def prepare_streams() -> None:
    """Replace closed standard streams by /dev/null, and ignore write errors of stderr.

    Python sets a closed stream (``fedmx run FILE 2>&-``) to None, and the next opened file gets its
    descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115, it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    log = sys.stderr
    if log is sys.__stderr__ and isinstance(log, io.TextIOWrapper):
        log.flush()
        raw = _Lossy(log.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), log.encoding, log.errors, line_buffering=True
        )


class _Lossy(io.FileIO):
    """A file that drops what it cannot write: the disk is full, or the reader has exited."""

    def write(self, content: Any) -> int:
        """Write bytes, or drop them."""
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


INTERNAL_ERROR = 1
"""A fault of fedmx, or of the user's own code; the traceback is shown."""

USER_ERROR = 2
"""An error that the user can correct, shown in one line."""

OTHER_BITS = 3
"""A replay differs from its records, or two runs differ."""

NOT_RUN = 4
"""A pack is intact, but was not replayed; the output says why."""

NO_UPDATE = 5
"""A client of a finished run made no update, since it failed at each task."""

INTERRUPTED = 130
"""A signal ended the command: 128 + SIGINT, as in shells."""


REPEAT_S = 2.0  # a second signal within this time counts as the first
RETRY_S = 0.02
_SHOW_CURSOR = b"\x1b[?25h"

_first_s: float | None = None


class Interrupted(Exception):
    """A signal ended a command cleanly; the text says how to continue."""


def catch_signals() -> None:
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
    """Call a function at each SIGHUP, inside a with statement.

    On a terminal, SIGHUP means that the terminal is gone, and ends the command as usual.
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
    """Exit at once; all resources must be closed.

    Python's own exit resets the signal handlers, may replace the exit code by a signal's, and lets
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
        # Nothing is lost: the records and checkpoints on the disk are always complete.
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            os.write(2, b"fedmx: ended at once\n")
        os._exit(INTERRUPTED)


def _raise_again(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _retry_interrupt(args: UnraisableHookArgs) -> None:
    """Raise an interrupt again if Python dropped it in a ``__del__`` or a C callback."""
    if issubclass(args.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
    elif _first_s is None:  # after an interrupt, errors of unfinished work are not shown
        sys.__unraisablehook__(args)


def restart_on(bits: str) -> None:
    """Restart this command if the experiment needs other CPU instructions; else do nothing.

    Args:
        bits: the experiment's `compute.bits`.

    Raises:
        ComputeError: this CPU lacks the portable instructions.
    """
    from layers.compute.bits import NATIVE, is_portable, portable_environment

    if bits == NATIVE or is_portable():
        return
    environment = portable_environment()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


SLOW = {
    "numpy": "numpy",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "mxnet": "MXNet",
    "gluoncv": "gluoncv",
    "onnx": "ONNX",
    "ray": "Ray",
}
"""The packages whose import can take half a second or more, with their display names."""

_ERASE = "\r\033[K"


def show_loading() -> None:
    """From now on, show on a terminal which slow package is being imported.

    The line disappears when the import ends. Only a terminal gets it.
    """
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        sys.meta_path.insert(0, _Watcher())


class _Watcher:
    """A finder that wraps the loaders of slow packages, found by other finders."""

    def __init__(self) -> None:
        self._stderr = sys.stderr
        self._shown: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a slow package's spec, whose loader shows the line; None for other packages."""
        if fullname not in SLOW or threading.current_thread() is not threading.main_thread():
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            self._wrap(spec, SLOW[fullname])
        return spec

    def _wrap(self, spec: ModuleSpec, name: str) -> None:
        """Make a package's loader show the line while it runs."""
        loader = spec.loader
        assert loader is not None
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._shown.append(name)
            self._draw()
            try:
                load(module)
            finally:
                self._shown.pop()
                self._draw()

        loader.exec_module = exec_module  # type: ignore[method-assign]

    def _draw(self) -> None:
        """Show the package whose import began first, or erase the line.

        An active progress line has replaced stderr; then nothing is drawn.
        """
        from fedmx.cli.output import is_json

        if sys.stderr is self._stderr and not is_json():
            line = f"loading {self._shown[0]} ..." if self._shown else ""
            sys.stderr.write(f"{_ERASE}{line}")
            sys.stderr.flush()
