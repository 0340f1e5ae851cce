"""The gate in front of the aggregator: what is not a sound update of this round does not pass."""

from __future__ import annotations

import math

import numpy as np

from layers.logic.errors import Refused
from layers.logic.exchange import Task, Update


def check_envelope(update: Update, task: Task) -> None:
    """Check what can be checked before any hook has looked at the update.

    Raises:
        Refused: for another round or client than the task's, or for a number of samples that is
            not a positive number.
    """
    if update.round != task.round:
        raise Refused(f"an update of round {update.round} in round {task.round}")
    if update.client != task.client:
        raise Refused(f"an update of client {update.client} from client {task.client}")
    if isinstance(update.samples, bool) or not math.isfinite(update.samples) or update.samples <= 0:
        raise Refused(f"a sample count of {update.samples}; it must be a positive number")
    if update.steps < 0:
        raise Refused(f"{update.steps} local steps; there cannot be fewer than none")


def check_content(update: Update, weights: np.ndarray, buffers: np.ndarray) -> None:
    """Check the decoded vectors against those of the global model.

    Raises:
        Refused: for a wrong length or type, or a value that is not finite.
    """
    for name, vector, like in (
        ("update", update.delta, weights),
        ("buffers", update.buffers, buffers),
    ):
        if vector.shape != like.shape:
            raise Refused(f"{name} of shape {vector.shape}; the model's is {like.shape}")
        if vector.dtype != np.float32:
            raise Refused(f"{name} of type {vector.dtype}; it must be float32")
        # The sum is not finite if any value is not; a finite vector can still overflow it.
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not math.isfinite(float(vector.sum(dtype=np.float64)))
        if suspicious and not np.isfinite(vector).all():
            raise Refused(f"{name} with {int((~np.isfinite(vector)).sum())} values not finite")
    for name, value in update.metrics.items():
        if not isinstance(value, (int, float)):
            raise Refused(f"a metric {name!r} that is no number")
