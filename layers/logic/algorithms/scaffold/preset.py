"""The preset scaffold."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.scaffold.hook import Scaffold
from layers.logic.core.preset import Preset
from layers.logic.selectors.uniform import Uniform


def scaffold(
    fraction: float = 0.1,
    option: Literal["I", "II"] = "II",
    server_learning_rate: float = 1.0,
    weights: Literal["uniform", "samples"] = "uniform",
) -> Preset:
    """SCAFFOLD (Karimireddy et al. 2020): control variates at both ends against client drift.

    Args:
        fraction: C, the share of the clients in a round.
        option: how a client's variate is found, see the hook scaffold.
        server_learning_rate: eta_g, the server's learning rate.
        weights: of the clients in the mean; the paper's is uniform.
    """
    return Preset(Uniform(fraction), Mean(weights), (Scaffold(option, server_learning_rate),))
