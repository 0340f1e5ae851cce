"""The exit codes of the command."""

from __future__ import annotations

INTERNAL_ERROR = 1
"""A fault of fedmx, or of the user's own code; the traceback is shown."""

USER_ERROR = 2
"""An error that the user can correct; it is shown in one line."""

OTHER_BITS = 3
"""What was run again parted from its records, or two runs from one another."""

NOT_RUN = 4
"""A pack is whole, and was not run again; the output says why."""

INTERRUPTED = 130
"""A signal ended the command: 128 + SIGINT, as shells count."""
