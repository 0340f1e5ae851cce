"""The presets that correct local training, or average in another way than FedAvg."""

from __future__ import annotations

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.hooks.fedavgm import FedAvgM
from layers.logic.hooks.fedopt import FedAdagrad, FedAdam, FedYogi
from layers.logic.hooks.fedprox import FedProx
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.uniform import Uniform


@settings_of_parts()
def fedprox() -> Preset:
    """FedProx (Li et al. 2020): FedAvg with a term that holds clients near the received model."""
    return Preset(Uniform(), Mean(), (FedProx(),))


@settings_of_parts()
def fednova(mu: float = 0.0) -> Preset:
    """FedNova (Wang et al. 2020): FedAvg in which more local steps give no more weight.

    Args:
        mu: of a proximal term as in FedProx, with which the aggregator reckons; 0: no such term.
    """
    return Preset(Uniform(), FedNova(mu), (FedProx(mu),) if mu else ())


@settings_of_parts()
def q_fedavg() -> Preset:
    """q-FedAvg (Li et al. 2020): clients with a high loss have more weight."""
    return Preset(Uniform(), QFedAvg())


@settings_of_parts()
def fedfv() -> Preset:
    """FedFV (Wang et al. 2021): conflicting updates are projected onto one another, then averaged.

    The plain mean of them has the length of the mean of the updates as they were received.
    """
    return Preset(Uniform(), FedFV())


@settings_of_parts()
def fedavgm() -> Preset:
    """FedAvgM (Hsu et al. 2019): FedAvg with momentum on the server."""
    return Preset(Uniform(), Mean(), (FedAvgM(),))


@settings_of_parts()
def fedadagrad() -> Preset:
    """FedAdagrad (Reddi et al. 2021, algorithm 2)."""
    return Preset(Uniform(), Mean("uniform"), (FedAdagrad(),))


@settings_of_parts()
def fedadam() -> Preset:
    """FedAdam (Reddi et al. 2021, algorithm 2)."""
    return Preset(Uniform(), Mean("uniform"), (FedAdam(),))


@settings_of_parts()
def fedyogi() -> Preset:
    """FedYogi (Reddi et al. 2021, algorithm 2)."""
    return Preset(Uniform(), Mean("uniform"), (FedYogi(),))
