"""The presets of selection by time and value: fedcs, offline-kp and online-kp."""

from __future__ import annotations

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.knapsack.fedcs import FedCS
from layers.logic.algorithms.knapsack.offline_kp import OfflineKP
from layers.logic.algorithms.knapsack.online_kp import OnlineKP
from layers.logic.presets.preset import Preset
from layers.logic.presets.settings_of_parts import settings_of_parts


@settings_of_parts()
def fedcs() -> Preset:
    """FedCS (Nishio and Yonetani 2019): as many clients as upload before the round's deadline.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no client fits keeps the
    model.
    """
    return Preset(FedCS(), Mean())


@settings_of_parts()
def offline_kp() -> Preset:
    """OfflineKP-FL: everybody trains, and a knapsack says whose updates are worth their upload.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no client fits keeps the
    model.
    """
    return Preset(OfflineKP(), Mean())


@settings_of_parts()
def online_kp() -> Preset:
    """OnlineKP-FL: everybody trains; an update is taken at once if it is worth its upload.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no update is taken keeps
    the model.
    """
    return Preset(OnlineKP(), Mean())
