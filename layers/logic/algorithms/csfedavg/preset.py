"""The preset csfedavg."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.csfedavg.divergence import Divergence
from layers.logic.algorithms.csfedavg.selector import CsFedAvg
from layers.logic.core.preset import Preset


def csfedavg(
    fraction: float = 0.1,
    candidates: float = 0.4,
    entering: float = 0.2,
    held_out: float = 0.01,
) -> Preset:
    """CSFedAvg (Zhang et al. 2021): FedAvg with the clients whose models look least biased.

    Args:
        fraction: C, the share of the clients in a round.
        candidates: P, the share of the clients that may become candidates.
        entering: rho, the share of a round's participants that do.
        held_out: the server's balanced set as a share of all training samples.
    """
    selector = CsFedAvg(fraction, candidates=candidates, entering=entering)
    return Preset(selector, Mean(), (Divergence(held_out),))
