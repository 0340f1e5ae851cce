"""Presets for clients whose labels are extremely biased: by mediators, shared data or selection."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.fedaim import FedAim
from layers.logic.aggregators.mean import Mean
from layers.logic.hooks.divergence import Divergence
from layers.logic.hooks.fedshare import FedShare
from layers.logic.hooks.rebalance import Rebalance
from layers.logic.preset import Preset
from layers.logic.selectors.astraea import Astraea
from layers.logic.selectors.csfedavg import CsFedAvg
from layers.logic.selectors.fedaim import FedAimSplit
from layers.logic.selectors.uniform import Uniform


def fedaim(
    mediators: int = 3,
    classes: int = 10,
    threshold: float | None = None,
    divergence: float = 0.015,
    tolerance: float = 0.1,
    reveal: Literal["histogram", "distance"] = "histogram",
) -> Preset:
    """FedAIM: extremely biased clients in line at mediators, the others by FedAvg, and an exchange.

    Args:
        mediators: M.
        classes: number of labels, C.
        threshold: theta_EMD, the bias from which on a client is extremely biased; None: 3 for 10
            classes and in proportion for others.
        divergence: theta_WD, how far the two servers' models must be apart to be exchanged.
        tolerance: theta_loss, by how much the loss may have risen then.
        reveal: what a client tells of its labels: its histogram, or how far that is from uniform.
    """
    selector = FedAimSplit(mediators, classes, threshold, reveal=reveal)
    return Preset(selector, FedAim(divergence, tolerance))


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


def fedshare(fraction: float = 0.1, shared: float = 0.05, part: float = 1.0) -> Preset:
    """FedShare (Zhao et al. 2018): FedAvg, and a small balanced set that all clients train on.

    Args:
        fraction: C, the share of the clients in a round.
        shared: beta, the size of that set as a share of all training samples.
        part: what part of it a client trains on.
    """
    return Preset(Uniform(fraction), Mean(), (FedShare(shared, part),))


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
