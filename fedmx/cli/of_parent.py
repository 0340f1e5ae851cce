"""The command as a child of another: it ends cleanly when its parent process ends.

    python -m fedmx.cli.of_parent PARENT WORD...

PARENT is the process id of the caller. Without this module, the children of a killed process would
run on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from fedmx.cli.start import main

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, words = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # otherwise the parent has ended
        main(words)
