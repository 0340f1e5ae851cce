"""The presets that are FedAvg but for who takes part."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.core.preset import Preset
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice


def power_of_choice(
    fraction: float = 0.1,
    candidates: int | None = None,
    loss: Literal["asked", "reported"] = "asked",
) -> Preset:
    """Power-of-choice (Cho et al. 2020): of some candidates, those with the highest loss.

    Args:
        fraction: C, the share of the clients in a round.
        candidates: d, how many are drawn by size; None: twice as many as take part.
        loss: asked of the candidates, or the last one that they reported.
    """
    return Preset(PowerOfChoice(fraction, candidates=candidates, loss=loss), Mean("uniform"))


def clustered(fraction: float = 0.1) -> Preset:
    """Clustered sampling (Fraboni et al. 2021, algorithm 1): one client of each of m clusters.

    Args:
        fraction: C, the share of the clients that are drawn in a round.
    """
    return Preset(Clustered(fraction), Mean("plan"))
