"""The preset oort."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.oort.selector import Oort
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts()
def oort() -> Preset:
    """Oort (Lai et al. 2021): clients whose loss is high and who are fast, and some new ones."""
    return Preset(Oort(), Mean())
