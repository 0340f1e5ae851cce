"""The presets that differ from FedAvg in who takes part."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice


@settings_of_parts()
def power_of_choice() -> Preset:
    """Power-of-choice (Cho et al. 2020): of some candidates, those with the highest loss."""
    return Preset(PowerOfChoice(), Mean("uniform"))


@settings_of_parts(fixed={"weights": "the selector gives each client its weight in the mean"})
def clustered() -> Preset:
    """Clustered sampling (Fraboni et al. 2021, algorithm 1): one client of each of m clusters."""
    return Preset(Clustered(), Mean("plan"))
