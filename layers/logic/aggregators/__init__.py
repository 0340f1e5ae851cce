"""The aggregators by name."""

from __future__ import annotations

from layers.logic.aggregator import Aggregator
from layers.logic.aggregators.fedaim import FedAim
from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.geometric_median import GeometricMedian
from layers.logic.aggregators.krum import Krum, MultiKrum
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.aggregators.norm_clip import NormClip
from layers.logic.aggregators.q_fedavg import QFedAvg
from layers.logic.aggregators.stratified import Stratified
from layers.logic.aggregators.trimmed_mean import TrimmedMean

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
