"""The preset astraea."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.astraea.rebalance import Rebalance
from layers.logic.algorithms.astraea.selector import Astraea
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts(fixed={"above": "`rebalance` sets it, in the selector and in the hook"})
def astraea(rebalance: float | None = None) -> Preset:
    """Astraea (Duan et al. 2019): all clients in line at mediators with balanced data.

    Args:
        rebalance: T_d. Clients train on fewer samples of a class whose z-score is above it, and on
            more of a class whose z-score is below -1 / T_d. None: on the samples that they have.
    """
    hooks = () if rebalance is None else (Rebalance(rebalance),)
    return Preset(Astraea(above=rebalance), Mean(), hooks)
