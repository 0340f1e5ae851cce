"""The command as a part of a longer one: it ends in good order when its parent process ends.

    python -m fedmx.cli.of_parent PARENT WORD...

PARENT is the id of the process that starts this one. Nothing else ends what a killed parent left
running.
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
    if os.getppid() == parent:  # otherwise it ended before
        main(words)
