"""The run folder: records, checkpoints, TensorBoard events and the final weights of one run.

Nothing here runs an experiment or reads one.
"""

from __future__ import annotations

from fedmx.run.checkpoint import Checkpoint
from fedmx.run.errors import CheckpointError, RunError
from fedmx.run.facts import gather_facts
from fedmx.run.folder.run_folder import RunFolder
from fedmx.run.weights import export_weights

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "RunError",
    "RunFolder",
    "export_weights",
    "gather_facts",
]
