"""The presets by name: the algorithms of an experiment file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.compressed import dgc, quantised, selective_sgd, signsgd, stc, top_k
from layers.logic.corrected import (
    fedadagrad,
    fedadam,
    fedavgm,
    fedfv,
    fednova,
    fedprox,
    fedyogi,
    projected_stc,
    q_fedavg,
    scaffold,
)
from layers.logic.hooks.gradient_reply import GradientReply
from layers.logic.mediated import astraea, csfedavg, fedaim, fedshare
from layers.logic.preset import Preset
from layers.logic.selected import (
    clustered,
    fedcs,
    offline_kp,
    online_kp,
    oort,
    power_of_choice,
)
from layers.logic.selector import Selector
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform
from layers.logic.stratified import fedsso


def fedavg(fraction: float = 0.1) -> Preset:
    """FedAvg (McMahan et al. 2017, algorithm 1).

    m = max(C K, 1) clients drawn uniformly train E epochs; the model becomes
    sum_k (n_k / n) w_k over those that returned.

    Args:
        fraction: C, the share of the clients in a round.
    """
    return Preset(Uniform(fraction), Mean())


def fedsgd(
    reply: Literal["model", "gradient"] = "model",
    order: Literal["uniform", "round-robin"] = "uniform",
) -> Preset:
    """FedSGD: one client at a time, each from the model that the one before it made.

    Args:
        reply: what the client returns, its model or the sum of its gradients.
        order: a client drawn uniformly each round, or all in turn.
    """
    selector: Selector = Uniform(count=1) if order == "uniform" else RoundRobin(count=1)
    return Preset(selector, Mean(), (GradientReply(),) if reply == "gradient" else ())


PRESETS: dict[str, Callable[..., Preset]] = {
    "astraea": astraea,
    "clustered": clustered,
    "csfedavg": csfedavg,
    "dgc": dgc,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedaim": fedaim,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedcs": fedcs,
    "fedfv": fedfv,
    "fednova": fednova,
    "fedprox": fedprox,
    "fedsgd": fedsgd,
    "fedshare": fedshare,
    "fedsso": fedsso,
    "fedyogi": fedyogi,
    "offline-kp": offline_kp,
    "online-kp": online_kp,
    "oort": oort,
    "power-of-choice": power_of_choice,
    "projected-stc": projected_stc,
    "q-fedavg": q_fedavg,
    "quantised": quantised,
    "scaffold": scaffold,
    "selective-sgd": selective_sgd,
    "signsgd": signsgd,
    "stc": stc,
    "top-k": top_k,
}
