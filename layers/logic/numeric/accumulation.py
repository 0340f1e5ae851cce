"""The weight with which a local optimiser counts its gradients (Wang et al. 2020, section 4.1)."""

from __future__ import annotations

import math


def accumulation(steps: int, learning_rate: float, momentum: float = 0.0, mu: float = 0.0) -> float:
    """Return ||a||_1, where local training makes w_t - w = eta sum_s a_s g_s of its gradients.

    ========================  ===================================================
    plain SGD                 tau
    momentum rho              [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho)
    a proximal term mu        [1 - (1 - eta mu)^tau] / (eta mu)
    ========================  ===================================================

    Args:
        steps: tau, 0 or more.
        learning_rate: eta, the same in all steps.
        momentum: rho, with a buffer that starts at zero.
        mu: of FedProx, with eta mu < 1; it cannot be combined with momentum.
    """
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    if mu:
        return -math.expm1(steps * math.log1p(-learning_rate * mu)) / (
            learning_rate * mu
        )  # exact for tiny mu
    return float(steps)
