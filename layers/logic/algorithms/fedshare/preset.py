"""The preset fedshare."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedshare.hook import FedShare
from layers.logic.core.preset import Preset
from layers.logic.core.preset_settings import settings_of_parts
from layers.logic.selectors.uniform import Uniform


@settings_of_parts()
def fedshare() -> Preset:
    """FedShare (Zhao et al. 2018): FedAvg, and a small balanced set that all clients train on."""
    return Preset(Uniform(), Mean(), (FedShare(),))
