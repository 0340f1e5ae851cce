"""The run folder: records, checkpoints, TensorBoard events and the final weights of one run.

It imports nothing that runs or reads an experiment.
"""

from __future__ import annotations

from fedmx.run.checkpoint import Checkpoint, export_weights
from fedmx.run.durable import CheckpointError, RunError
from fedmx.run.folder import RunFolder
from fedmx.run.identity import gather_facts

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "RunError",
    "RunFolder",
    "export_weights",
    "gather_facts",
]
