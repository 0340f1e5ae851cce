"""Clients with given times and norms, and the cases that were worked out for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layers.logic import (
    RoundReport,
    Selector,
    ServerState,
    run_round,
)
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from tests.logic.memory_carrier import a_logic, a_state
from tests.logic.quadratic import bowls
from tests.logic.timed_carrier import TimedCarrier
from tests.logic.vector_files import vectors

KNAPSACKS = (FedCS(), OfflineKP(), OnlineKP())


def peers_of(selector: Selector, case: Mapping[str, Any], **settings) -> TimedCarrier:
    """Return clients 0, 1, ... with the times and norms of a case."""
    logic = a_logic(selector, deadline_s=case["T_round"], min_updates=0, **settings)
    number = len(case["t_uc"])
    return TimedCarrier(
        logic,
        bowls(number),
        train_s=dict(enumerate(case["t_uc"])),
        upload_s=dict(enumerate(case["t_ul"])),
        norms=dict(enumerate(case.get("norms", [1.0] * number))),
    )


def played(
    selector: Selector, case: Mapping[str, Any], largest: float = 0.0
) -> tuple[ServerState, RoundReport]:
    peers = peers_of(selector, case)
    start = a_state(peers.logic)
    if largest:
        start = replace(start, memory={"selector": {"largest": largest}})
    return run_round(start, peers, peers.logic)


def cases(name: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any], float]]:
    file = vectors(name)
    pairs = zip(file["inputs"]["cases"], file["expected"]["cases"], strict=True)
    return [(case, expected, file["tolerance"]) for case, expected in pairs]
