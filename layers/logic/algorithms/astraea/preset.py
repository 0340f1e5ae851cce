"""The preset astraea."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.astraea.rebalance import Rebalance
from layers.logic.algorithms.astraea.selector import Astraea
from layers.logic.core.preset import Preset


def astraea(gamma: int = 10, classes: int = 10, rebalance: float | None = None) -> Preset:
    """Astraea (Duan et al. 2019): all clients in line at mediators with balanced data.

    Args:
        gamma: clients of a mediator.
        classes: number of labels, C.
        rebalance: T_d, from which z-score on a class is too frequent, and below -1 / T_d too rare:
            clients train on fewer or more of its samples; None: on what they have.
    """
    hooks = () if rebalance is None else (Rebalance(rebalance),)
    return Preset(Astraea(gamma, classes, rebalance), Mean(), hooks)
