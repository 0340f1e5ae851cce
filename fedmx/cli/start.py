"""The entry point of the command: checks Python and the packages, and ends cleanly on signals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from fedmx.cli.terminal import interrupts
from fedmx.cli.terminal.exit_codes import INTERRUPTED, USER_ERROR
from fedmx.layers_check import hidden_layers

SUPPORTED = ((3, 10), (3, 11))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process; an error is one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.version_info[:2] not in SUPPORTED:
        here = ".".join(map(str, sys.version_info[:3]))
        _exit_with_error(
            f"needs Python 3.10 or 3.11 (for MXNet 1.9.1), not {here}; use one of these"
        )
    hidden = hidden_layers()
    if hidden is not None:
        _exit_with_error(hidden)
    interrupts.install()
    try:
        try:
            from fedmx.cli.main import run
        except ModuleNotFoundError as error:
            root = (error.name or "").partition(".")[0]
            if root in ("", "fedmx", "layers") or "--debug" in words:
                raise
            _exit_with_error(f"the package {root} is not installed; install fedmx with pip")
        code = run(words)
    except KeyboardInterrupt:
        sys.stderr.write("fedmx: interrupted\n")
        code = INTERRUPTED
    if code == INTERRUPTED:
        interrupts.exit_process(code)
    sys.exit(code)


def _exit_with_error(message: str) -> NoReturn:
    sys.stderr.write(f"fedmx: {message}\n")
    sys.exit(USER_ERROR)
