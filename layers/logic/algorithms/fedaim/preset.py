"""The preset fedaim."""

from __future__ import annotations

from typing import Literal

from layers.logic.algorithms.fedaim.aggregator import FedAim
from layers.logic.algorithms.fedaim.selector import FedAimSplit
from layers.logic.core.preset import Preset


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
