"""Presets that are FedAvg but for who takes part."""

from __future__ import annotations

from typing import Literal

from layers.logic.aggregators.mean import Mean
from layers.logic.preset import Preset
from layers.logic.selectors.clustered import Clustered
from layers.logic.selectors.fedcs import FedCS
from layers.logic.selectors.offline_kp import OfflineKP
from layers.logic.selectors.online_kp import OnlineKP
from layers.logic.selectors.oort import Oort
from layers.logic.selectors.power_of_choice import PowerOfChoice


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


def power_of_choice(
    fraction: float = 0.1,
    candidates: int | None = None,
    loss: Literal["asked", "reported"] = "asked",
) -> Preset:
    """Power-of-choice (Cho et al. 2020): of some candidates, those with the highest loss.

    Args:
        fraction: C, the share of the clients in a round.
        candidates: d, how many are drawn by size; None: twice as many as take part.
        loss: asked of the candidates, or the last one that they reported.
    """
    return Preset(PowerOfChoice(fraction, candidates=candidates, loss=loss), Mean("uniform"))


def oort(
    fraction: float = 0.1, alpha: float = 2.0, preferred_s: float | None = None, pacer_s: float = 0
) -> Preset:
    """Oort (Lai et al. 2021): clients whose loss is high and who are fast, and some new ones.

    Args:
        fraction: C, the share of the clients in a round.
        alpha: penalty on those that take longer than `preferred_s`.
        preferred_s: T, in seconds; None: the round's deadline, if it has one.
        pacer_s: how much longer T becomes when less is gained.
    """
    return Preset(Oort(fraction, alpha=alpha, preferred_s=preferred_s, pacer_s=pacer_s), Mean())


def clustered(fraction: float = 0.1) -> Preset:
    """Clustered sampling (Fraboni et al. 2021, algorithm 1): one client of each of m clusters.

    Args:
        fraction: C, the share of the clients that are drawn in a round.
    """
    return Preset(Clustered(fraction), Mean("plan"))
