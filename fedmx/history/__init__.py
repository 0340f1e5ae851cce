"""The history of a run: it is replayed, compared, forked, packed and verified from its journal.

`fedmx.run` writes the files of a run; nothing here writes to the folder of a run.
"""

from fedmx.history.diff import DiffReport, diff
from fedmx.history.fork import Fork, fork
from fedmx.history.pack import PackError, PackFile
from fedmx.history.packing import pack
from fedmx.history.recorded import RecordedRun, rerun
from fedmx.history.replay import ReplayReport, replay
from fedmx.history.verify import Verification, verify

__all__ = [
    "DiffReport",
    "Fork",
    "PackError",
    "PackFile",
    "RecordedRun",
    "ReplayReport",
    "Verification",
    "diff",
    "fork",
    "pack",
    "replay",
    "rerun",
    "verify",
]
