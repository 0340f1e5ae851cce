"""The catalogue: every hook, selector, aggregator and preset by its name in an experiment file.

Beside these tables live the presets whose parts are of one file each. No algorithm is written here.
"""

from __future__ import annotations

from collections.abc import Callable

from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.geometric_median import GeometricMedian
from layers.logic.aggregators.krum import Krum, MultiKrum, NormClip
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median, TrimmedMean
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.algorithms.astraea import Astraea, Rebalance, astraea
from layers.logic.algorithms.csfedavg import CsFedAvg, Divergence, csfedavg
from layers.logic.algorithms.fedaim import FedAim, FedAimSplit, fedaim
from layers.logic.algorithms.fedcs import FedCS, fedcs
from layers.logic.algorithms.fedshare import FedShare, fedshare
from layers.logic.algorithms.fedsso import FedSSO, Stratified, fedsso
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP, offline_kp, online_kp
from layers.logic.algorithms.oort import Oort, oort
from layers.logic.algorithms.scaffold import Scaffold, scaffold
from layers.logic.catalogue.presets import (
    clustered,
    dgc,
    fedadagrad,
    fedadam,
    fedavg,
    fedavgm,
    fedfv,
    fednova,
    fedprox,
    fedsgd,
    fedyogi,
    power_of_choice,
    projected_stc,
    q_fedavg,
    quantised,
    selective_sgd,
    signsgd,
    stc,
    top_k,
)
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.hook import Hook
from layers.logic.core.preset import Preset
from layers.logic.core.selector import Selector
from layers.logic.hooks.compressors import Quantise, SignSgd, Stc, TopK
from layers.logic.hooks.dgc import Dgc
from layers.logic.hooks.local_gradients import Clip, FedProx, GradientReply
from layers.logic.hooks.selective_sgd import SelectiveSgd
from layers.logic.hooks.server_optimisers import FedAdagrad, FedAdam, FedAvgM, FedYogi
from layers.logic.hooks.stragglers import Stragglers
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.uniform import BySize, RoundRobin, Uniform

HOOKS: dict[str, type[Hook]] = {
    "clip": Clip,
    "dgc": Dgc,
    "divergence": Divergence,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedavgm": FedAvgM,
    "fedprox": FedProx,
    "fedshare": FedShare,
    "fedyogi": FedYogi,
    "gradient-reply": GradientReply,
    "quantise": Quantise,
    "rebalance": Rebalance,
    "scaffold": Scaffold,
    "selective-sgd": SelectiveSgd,
    "sign-sgd": SignSgd,
    "stc": Stc,
    "stragglers": Stragglers,
    "top-k": TopK,
}

SELECTORS: dict[str, type[Selector]] = {
    "astraea": Astraea,
    "csfedavg": CsFedAvg,
    "fedaim": FedAimSplit,
    "uniform": Uniform,
    "by-size": BySize,
    "clustered": Clustered,
    "fedcs": FedCS,
    "fedsso": FedSSO,
    "offline-kp": OfflineKP,
    "online-kp": OnlineKP,
    "oort": Oort,
    "power-of-choice": PowerOfChoice,
    "round-robin": RoundRobin,
}

AGGREGATORS: dict[str, type[Aggregator]] = {
    "fedaim": FedAim,
    "fedfv": FedFV,
    "fednova": FedNova,
    "geometric-median": GeometricMedian,
    "krum": Krum,
    "majority-vote": MajorityVote,
    "mean": Mean,
    "median": Median,
    "multi-krum": MultiKrum,
    "norm-clip": NormClip,
    "q-fedavg": QFedAvg,
    "stratified": Stratified,
    "trimmed-mean": TrimmedMean,
}

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
