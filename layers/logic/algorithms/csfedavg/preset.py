"""The preset csfedavg."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.csfedavg.divergence import Divergence
from layers.logic.algorithms.csfedavg.selector import CsFedAvg
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts()
def csfedavg() -> Preset:
    """CSFedAvg (Zhang et al. 2021): FedAvg with the clients whose models look least biased."""
    return Preset(CsFedAvg(), Mean(), (Divergence(),))
