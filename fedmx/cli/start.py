"""The entry point: the right Python and all packages are there, and signals end it cleanly."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmx.cli.terminal import interrupts

SUPPORTED = ((3, 10), (3, 11))
WRONG = 2  # exit code of everything that the user can put right
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process; what goes wrong is one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.version_info[:2] not in SUPPORTED:
        here = ".".join(map(str, sys.version_info[:3]))
        _end(f"needs Python 3.10 or 3.11 (for MXNet 1.9.1), not {here}; use one of these", WRONG)
    interrupts.install()
    try:
        try:
            from fedmx.cli.main import run
        except ModuleNotFoundError as error:
            root = (error.name or "").partition(".")[0]
            if root in ("", "fedmx", "layers") or "--debug" in words:
                raise
            _end(f"the package {root} is not installed; install fedmx with pip", WRONG)
        code = run(words)
    except KeyboardInterrupt:
        sys.stderr.write("fedmx: interrupted\n")
        code = INTERRUPTED
    if code == INTERRUPTED:
        interrupts.leave(code)
    sys.exit(code)


def _end(message: str, code: int) -> None:
    sys.stderr.write(f"fedmx: {message}\n")
    sys.exit(code)
