"""The errors of a run folder."""

from __future__ import annotations

from fedmx.errors import FedmxError


class RunError(FedmxError):
    """A run folder cannot be created, opened, used or written."""


class CheckpointError(RunError):
    """A checkpoint cannot be written, or all existing ones are damaged."""


class DamagedError(RunError):
    """A file of a run folder is not what was written; the text has no word on what to do."""
