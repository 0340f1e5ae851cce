"""The presets that correct local training, or average otherwise than FedAvg."""

from __future__ import annotations

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.core.preset import Preset
from layers.logic.hooks.fedavgm import FedAvgM
from layers.logic.hooks.fedopt import FedAdagrad, FedAdam, FedYogi
from layers.logic.hooks.fedprox import FedProx
from layers.logic.selectors.uniform import Uniform


def fedprox(fraction: float = 0.1, mu: float = 0.01) -> Preset:
    """FedProx (Li et al. 2020): FedAvg with a term that holds clients near the received model.

    Args:
        fraction: C, the share of the clients in a round.
        mu: of the term mu/2 ||w - w_t||^2.
    """
    return Preset(Uniform(fraction), Mean(), (FedProx(mu),))


def fednova(fraction: float = 0.1, mu: float = 0.0) -> Preset:
    """FedNova (Wang et al. 2020): FedAvg in which more local steps give no more say.

    Args:
        fraction: C, the share of the clients in a round.
        mu: of a proximal term as in FedProx.
    """
    return Preset(Uniform(fraction), FedNova(mu), (FedProx(mu),) if mu else ())


def q_fedavg(fraction: float = 0.1, q: float = 1.0) -> Preset:
    """q-FedAvg (Li et al. 2020): clients with a high loss have more say.

    Args:
        fraction: C, the share of the clients in a round.
        q: how much more; 0 is the mean of the clients' models.
    """
    return Preset(Uniform(fraction), QFedAvg(q))


def fedfv(fraction: float = 0.1, alpha: float = 0.1, tau: int = 1) -> Preset:
    """FedFV (Wang et al. 2021): updates in conflict are projected onto one another before the mean.

    Args:
        fraction: C, the share of the clients in a round.
        alpha: share of the updates with the highest losses that are not projected.
        tau: rounds that external conflicts reach back.
    """
    return Preset(Uniform(fraction), FedFV(alpha, tau))


def fedavgm(
    fraction: float = 0.1, server_learning_rate: float = 1.0, momentum: float = 0.9
) -> Preset:
    """FedAvgM (Hsu et al. 2019): FedAvg with momentum on the server.

    Args:
        fraction: C, the share of the clients in a round.
        server_learning_rate: eta, the server's learning rate.
        momentum: beta.
    """
    return Preset(Uniform(fraction), Mean(), (FedAvgM(server_learning_rate, momentum),))


def fedadagrad(
    fraction: float = 0.1, server_learning_rate: float = 0.1, tau: float = 1e-3
) -> Preset:
    """FedAdagrad (Reddi et al. 2021, algorithm 2).

    Args:
        fraction: C, the share of the clients in a round.
        server_learning_rate: eta, the server's learning rate.
        tau: how adaptive it is; the smaller, the more.
    """
    return Preset(Uniform(fraction), Mean("uniform"), (FedAdagrad(server_learning_rate, tau=tau),))


def fedadam(fraction: float = 0.1, server_learning_rate: float = 0.01, tau: float = 1e-3) -> Preset:
    """FedAdam (Reddi et al. 2021, algorithm 2).

    Args:
        fraction: C, the share of the clients in a round.
        server_learning_rate: eta, the server's learning rate.
        tau: how adaptive it is; the smaller, the more.
    """
    return Preset(Uniform(fraction), Mean("uniform"), (FedAdam(server_learning_rate, tau=tau),))


def fedyogi(fraction: float = 0.1, server_learning_rate: float = 0.01, tau: float = 1e-3) -> Preset:
    """FedYogi (Reddi et al. 2021, algorithm 2).

    Args:
        fraction: C, the share of the clients in a round.
        server_learning_rate: eta, the server's learning rate.
        tau: how adaptive it is; the smaller, the more.
    """
    return Preset(Uniform(fraction), Mean("uniform"), (FedYogi(server_learning_rate, tau=tau),))
