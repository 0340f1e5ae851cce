"""The selectors by name."""

from __future__ import annotations

from layers.logic.selector import Selector
from layers.logic.selectors.astraea import Astraea
from layers.logic.selectors.by_size import BySize
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.csfedavg import CsFedAvg
from layers.logic.selectors.fedaim import FedAimSplit
from layers.logic.selectors.fedcs import FedCS
from layers.logic.selectors.fedsso import FedSSO
from layers.logic.selectors.offline_kp import OfflineKP
from layers.logic.selectors.online_kp import OnlineKP
from layers.logic.selectors.oort import Oort
from layers.logic.selectors.power_of_choice import PowerOfChoice
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform

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
