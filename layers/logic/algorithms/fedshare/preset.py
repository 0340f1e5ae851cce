"""The preset fedshare."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedshare.hook import FedShare
from layers.logic.core.preset import Preset
from layers.logic.selectors.uniform import Uniform


def fedshare(fraction: float = 0.1, shared: float = 0.05, part: float = 1.0) -> Preset:
    """FedShare (Zhao et al. 2018): FedAvg, and a small balanced set that all clients train on.

    Args:
        fraction: C, the share of the clients in a round.
        shared: beta, the size of that set as a share of all training samples.
        part: what part of it a client trains on.
    """
    return Preset(Uniform(fraction), Mean(), (FedShare(shared, part),))
