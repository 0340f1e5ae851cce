"""The presets that send fewer bytes."""

from __future__ import annotations

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.quantise import Quantise
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.sign_sgd import SignSgd
from layers.logic.hooks.stc import Stc
from layers.logic.hooks.top_k import TopK
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform


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
