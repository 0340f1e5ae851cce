"""The presets of selection by time and value: fedcs, offline-kp and online-kp."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.knapsack.fedcs import FedCS
from layers.logic.algorithms.knapsack.offline_kp import OfflineKP
from layers.logic.algorithms.knapsack.online_kp import OnlineKP
from layers.logic.core.preset import Preset


def fedcs(candidates: float = 1.0) -> Preset:
    """FedCS (Nishio and Yonetani 2019): as many clients as upload before the round's deadline.

    Needs `clock.deadline_s`; with `logic.min_updates: 0` a round in which
    nobody fits keeps the model.

    Args:
        candidates: share of the clients that are asked how long they will take.
    """
    return Preset(FedCS(candidates), Mean())


def offline_kp(
    stop: Literal["strict", "non_increase"] = "strict",
    output: Literal["best", "last"] = "best",
    solver: Literal["exact", "dp"] = "exact",
    resolution_s: float = 1.0,
) -> Preset:
    """OfflineKP-FL: everybody trains, and a knapsack says whose updates are worth their upload.

    Needs `clock.deadline_s`; with `logic.min_updates: 0` a round in which
    nobody fits keeps the model.

    Args:
        stop: which value of the knapsack ends the round.
        output: whose uploads are granted then; in a deployment ``last``.
        solver: of the knapsack.
        resolution_s: of the solver ``dp``, in seconds.
    """
    return Preset(OfflineKP(stop, output, solver, resolution_s), Mean())


def online_kp(
    L0: float | None = None,
    U: float | None = None,
    value: Literal["raw", "normalised"] = "raw",
) -> Preset:
    """OnlineKP-FL: everybody trains; an update is taken at once if it is worth its upload.

    Needs `clock.deadline_s`; with `logic.min_updates: 0` a round in which
    nobody is taken keeps the model.

    Args:
        L0: lowest worth of a second, in norm a second; None: as the first round shows.
        U: highest worth of a second; None with L0.
        value: of an update: its norm, or its norm by the largest of the last round.
    """
    return Preset(OnlineKP(L0, U, value), Mean())
