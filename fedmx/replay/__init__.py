"""Replay: a recorded run is run again, whole, one round of it, or one client's part in a round.

Nothing here writes to a run folder, and what a run records is in `fedmx.run`.
"""

from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.replaying import ReplayReport, replay
from fedmx.replay.rerun import rerun

__all__ = ["RecordedRun", "ReplayReport", "replay", "rerun"]
