"""Presets that draw clients by strata."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedsso.aggregator import Stratified
from layers.logic.algorithms.fedsso.selector import FedSSO
from layers.logic.algorithms.fedsso.strata import Noise
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.preset import Preset


def fedsso(
    beta: float = 0.1,
    learning_rate: float = 0.01,
    min_samples: int = 2,
    xi: float = 0.25,
    noise: Noise = "stratum",
    mean: Literal["normalised", "stratified", "literal"] = "normalised",
    sketch: int = 0,
) -> Preset:
    """FedSSO (algorithm 1): strata by OPTICS of one-step updates, a share of each in every round.

    The paper's learning rate is 0.01 / (1 + t) with the survey's step for t = 0: write
    `learning_rate: 0.01` here, and in `train` `learning_rate: 0.01` with
    `schedule: {name: inverse, start: 1}`.

    Args:
        beta: share of a stratum in a round.
        learning_rate: eta_0, of the survey's step.
        min_samples: of OPTICS, see the selector fedsso.
        xi: of OPTICS, likewise.
        noise: what the clients in no cluster are, likewise.
        mean: ``"normalised"`` is FedAvg's; the others see the aggregator stratified.
        sketch: values that a client sends in place of its step, likewise; 0: the step itself.
    """
    aggregator: Aggregator = Mean() if mean == "normalised" else Stratified(mean)
    return Preset(FedSSO(beta, learning_rate, min_samples, xi, noise, sketch), aggregator)
