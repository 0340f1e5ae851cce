"""The presets that send fewer bytes."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.core.preset import Preset
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.quantise import Quantise
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.sign_sgd import SignSgd
from layers.logic.hooks.stc import Stc
from layers.logic.hooks.top_k import TopK
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform


def stc(fraction: float = 0.1, p: float = 0.1) -> Preset:
    """STC: sparse ternary compression up and down, plain mean (Sattler et al. 2019).

    Args:
        fraction: C, the share of the clients in a round.
        p: share of the values that travel, in both directions.
    """
    return Preset(Uniform(fraction), Mean("uniform"), (Stc(p, p),))


def projected_stc(
    fraction: float = 0.1, p: float = 0.1, alpha: float = 0.1, tau: int = 1
) -> Preset:
    """Projected STC: sparse ternary updates up and down, and conflicts projected between.

    Clients send ternary updates with error feedback, the server projects these as FedFV does,
    and sends what it makes of them ternary with a residual of its own.

    Args:
        fraction: C, the share of the clients in a round.
        p: share of the values that travel, in both directions.
        alpha: share of the updates with the highest losses that are not projected.
        tau: rounds that external conflicts reach back.
    """
    return Preset(Uniform(fraction), FedFV(alpha, tau), (Stc(p, p),))


def top_k(fraction: float = 0.1, p: float = 0.01) -> Preset:
    """FedAvg of the largest values of each update, with error feedback (Aji and Heafield 2017).

    Args:
        fraction: C, the share of the clients in a round.
        p: share of the values that go up.
    """
    return Preset(Uniform(fraction), Mean(), (TopK(p),))


def dgc(fraction: float = 0.1, p: float = 0.001, momentum: float = 0.9) -> Preset:
    """Deep gradient compression with its warm-up, plain mean (Lin et al. 2018).

    Args:
        fraction: C, the share of the clients in a round.
        p: share of the values that go up after the warm-up.
        momentum: of the momentum correction.
    """
    return Preset(Uniform(fraction), Mean("uniform"), (Dgc(p, momentum=momentum),))


def signsgd(fraction: float = 0.1, step: float | None = None, feedback: bool = True) -> Preset:
    """SignSGD with majority vote, a bit a value both ways (Bernstein et al. 2018).

    Args:
        fraction: C, the share of the clients in a round.
        step: that each parameter makes; None takes the mean size of the clients' own.
        feedback: whether each end adds what a sign left out to what it takes the next one of.
    """
    return Preset(Uniform(fraction), MajorityVote(step), (SignSgd(feedback=feedback),))


def quantised(fraction: float = 0.1, bits: Literal[8, 16] = 8) -> Preset:
    """FedAvg of updates of 8 or 16 bits a value (Alistarh et al. 2017).

    Args:
        fraction: C, the share of the clients in a round.
        bits: 8 or 16.
    """
    return Preset(Uniform(fraction), Mean(), (Quantise(bits),))


def selective_sgd(download: float = 1.0, upload: float = 0.1, clip: float | None = 0.001) -> Preset:
    """Distributed selective SGD, one client after the other (Shokri and Shmatikov 2015).

    Args:
        download: theta_d, the share of the parameters that go down.
        upload: theta_u, the share of the changes that go up.
        clip: gamma, the largest change that goes up.
    """
    hook = SelectiveSgd(download=download, upload=upload, clip=clip)
    return Preset(RoundRobin(count=1), Mean(), (hook,))
