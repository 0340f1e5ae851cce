"""The presets whose parts are modules of their own; `algorithms` has the others."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.selector import Selector
from layers.logic.hooks.compressors import Quantise, SignSgd, Stc, TopK
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.local_gradients import FedProx, GradientReply
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import RoundRobin, Uniform


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


@settings_of_parts()
def fedprox() -> Preset:
    """FedProx (Li et al. 2020): FedAvg with a term that holds clients near the received model."""
    return Preset(Uniform(), Mean(), (FedProx(),))


@settings_of_parts()
def fednova(mu: float = 0.0) -> Preset:
    """FedNova (Wang et al. 2020): FedAvg in which more local steps give no more weight.

    Args:
        mu: the weight of a proximal term as in FedProx, for which the aggregator corrects; 0: no
            term.
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


@settings_of_parts()
def power_of_choice() -> Preset:
    """Power-of-choice (Cho et al. 2020): of some candidates, those with the highest loss."""
    return Preset(PowerOfChoice(), Mean("uniform"))


@settings_of_parts(fixed={"weights": "the selector gives each client its weight in the mean"})
def clustered() -> Preset:
    """Clustered sampling (Fraboni et al. 2021, algorithm 1): one client of each of m clusters."""
    return Preset(Clustered(), Mean("plan"))


@settings_of_parts()
def stc(p: float = 0.1) -> Preset:
    """STC: sparse ternary compression up and down, plain mean (Sattler et al. 2019).

    Args:
        p: share of the values that travel, in both directions; `p_up` and `p_down` come before it.
    """
    return Preset(Uniform(), Mean("uniform"), (Stc(p, p),))


@settings_of_parts()
def projected_stc(p: float = 0.1) -> Preset:
    """Projected STC: sparse ternary updates up and down, and conflicts projected in between.

    Clients send ternary updates with error feedback. The server projects them as FedFV does, and
    sends the change of the model in ternary form, with a residual of its own.

    Args:
        p: share of the values that travel, in both directions; `p_up` and `p_down` come before it.
    """
    return Preset(Uniform(), FedFV(), (Stc(p, p),))


@settings_of_parts()
def top_k() -> Preset:
    """FedAvg of the largest values of each update, with error feedback (Aji and Heafield 2017)."""
    return Preset(Uniform(), Mean(), (TopK(),))


@settings_of_parts()
def dgc() -> Preset:
    """Deep gradient compression with its warm-up, plain mean (Lin et al. 2018)."""
    return Preset(Uniform(), Mean("uniform"), (Dgc(),))


@settings_of_parts()
def signsgd() -> Preset:
    """SignSGD with majority vote, one bit a value both ways (Bernstein et al. 2018)."""
    return Preset(Uniform(), MajorityVote(), (SignSgd(),))


@settings_of_parts()
def quantised() -> Preset:
    """FedAvg of updates of 8 or 16 bits a value (Alistarh et al. 2017)."""
    return Preset(Uniform(), Mean(), (Quantise(),))


@settings_of_parts(fixed={"fraction": "`count` says how many clients there are in a round"})
def selective_sgd() -> Preset:
    """Distributed selective SGD, one client after the other (Shokri and Shmatikov 2015)."""
    return Preset(RoundRobin(count=1), Mean(), (SelectiveSgd(),))
