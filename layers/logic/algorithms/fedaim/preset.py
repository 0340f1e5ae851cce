"""The preset fedaim."""

from __future__ import annotations

from layers.logic.algorithms.fedaim.aggregator import FedAim
from layers.logic.algorithms.fedaim.selector import FedAimSplit
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts()
def fedaim() -> Preset:
    """FedAIM: mediators for extremely biased clients, FedAvg for the others, and an exchange."""
    return Preset(FedAimSplit(), FedAim())
