"""The aggregators by name."""

from __future__ import annotations

from layers.logic.aggregator import Aggregator
from layers.logic.aggregators.fedfv import FedFV
from layers.logic.aggregators.fednova import FedNova
from layers.logic.aggregators.majority_vote import MajorityVote
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.q_fedavg import QFedAvg

AGGREGATORS: dict[str, type[Aggregator]] = {
    "fedfv": FedFV,
    "fednova": FedNova,
    "majority-vote": MajorityVote,
    "mean": Mean,
    "q-fedavg": QFedAvg,
}
