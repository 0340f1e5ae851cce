"""The preset fedsso."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedsso.aggregator import Stratified
from layers.logic.algorithms.fedsso.selector import FedSSO
from layers.logic.core.aggregator import Aggregator
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts()
def fedsso(mean: Literal["normalised", "stratified", "literal"] = "normalised") -> Preset:
    """FedSSO (algorithm 1): strata by OPTICS of one-step updates, a share of each in every round.

    The paper's learning rate is 0.01 / (1 + t), and the survey's step is t = 0. So write
    `learning_rate: 0.01` here, and in `train` `learning_rate: 0.01` with
    `schedule: {name: inverse, start: 1}`.

    Args:
        mean: ``"normalised"`` is FedAvg's mean, with its `weights`; ``"stratified"`` and
            ``"literal"`` are those of the aggregator `stratified`.
    """
    aggregator: Aggregator = Mean() if mean == "normalised" else Stratified(mean)
    return Preset(FedSSO(), aggregator)
