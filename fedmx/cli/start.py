"""The entry point of the command: it checks Python and the packages, and handles signals."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from fedmx.cli.output import not_installed
from fedmx.cli.process import (
    INTERRUPTED,
    USER_ERROR,
    catch_signals,
    exit_process,
    prepare_streams,
    show_loading,
)
from fedmx.layers_check import hidden_layers

NEW_OBJECTS = 10_000
"""Python looks for garbage after so many new objects; its own 700 make imports a tenth longer."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process; an error is one line on stderr."""
    gc.set_threshold(NEW_OBJECTS)
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    hidden = hidden_layers()
    if hidden is not None:
        _exit_with_error(hidden)
    _check_python()
    catch_signals()
    show_loading()
    try:
        try:
            from fedmx.cli.main import main as run
        except ModuleNotFoundError as error:
            root = (error.name or "").partition(".")[0]
            if root in ("", "fedmx", "layers") or "--debug" in words:
                raise
            _exit_with_error(not_installed(root))
        code = run(words)
    except KeyboardInterrupt:
        sys.stderr.write("fedmx: interrupted\n")
        code = INTERRUPTED
    if code == INTERRUPTED:
        exit_process(code)
    sys.exit(code)


def _check_python() -> None:
    """Exit if this Python is not supported, or was started without docstrings."""
    from layers.compute.engines.mxnet.loading import check_docstrings, check_python

    try:
        check_python()
        check_docstrings()
    except ImportError as error:
        _exit_with_error(str(error))


def _exit_with_error(message: str) -> NoReturn:
    sys.stderr.write(f"fedmx: {message}\n")
    sys.exit(USER_ERROR)
