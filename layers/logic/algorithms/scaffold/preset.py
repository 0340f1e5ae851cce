"""The preset scaffold."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.scaffold.hook import Scaffold
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.uniform import Uniform


@settings_of_parts()
def scaffold() -> Preset:
    """SCAFFOLD (Karimireddy et al. 2020): control variates at both ends against client drift.

    As in the paper, all clients have the same weight in the mean.
    """
    return Preset(Uniform(), Mean("uniform"), (Scaffold(),))
