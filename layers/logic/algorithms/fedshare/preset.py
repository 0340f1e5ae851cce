"""The preset fedshare."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedshare.hook import FedShare
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.uniform import Uniform


@settings_of_parts()
def fedshare() -> Preset:
    """FedShare (Zhao et al. 2018): FedAvg, and a small balanced set that all clients train on."""
    return Preset(Uniform(), Mean(), (FedShare(),))
