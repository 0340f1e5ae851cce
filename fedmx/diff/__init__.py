"""Diff: where two recorded runs part, from their settings down to the station of one client.

Nothing here writes to a run folder; how a run is run again is in `fedmx.replay`.
"""

from fedmx.diff.diffing import diff
from fedmx.diff.report import DiffReport

__all__ = ["DiffReport", "diff"]
