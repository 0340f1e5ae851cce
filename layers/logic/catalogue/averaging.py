"""The presets with which all others are compared: FedAvg and FedSGD."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.core.selector import Selector
from layers.logic.hooks.gradient_reply import GradientReply
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform


@settings_of_parts()
def fedavg() -> Preset:
    """FedAvg (McMahan et al. 2017, algorithm 1).

    m = max(C K, 1) clients drawn uniformly train E epochs; the model becomes
    sum_k (n_k / n) w_k over those that returned.
    """
    return Preset(Uniform(), Mean())


@settings_of_parts(
    fixed={
        "fraction": "there is one client in a round",
        "count": "there is one client in a round",
        "weights": "the mean of one client is the model of that client",
    }
)
def fedsgd(
    reply: Literal["model", "gradient"] = "model",
    order: Literal["uniform", "round-robin"] = "uniform",
) -> Preset:
    """FedSGD: one client at a time; each starts from the model that the one before it made.

    Args:
        reply: what the client returns, its model or the sum of its gradients.
        order: ``"uniform"`` draws a client each round, ``"round-robin"`` asks all in turn.
    """
    selector: Selector = Uniform(count=1) if order == "uniform" else RoundRobin(count=1)
    return Preset(selector, Mean(), (GradientReply(),) if reply == "gradient" else ())
