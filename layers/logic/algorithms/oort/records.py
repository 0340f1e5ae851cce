"""What Oort keeps of each client: reward, last round, how often it was asked, and its seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layers.arithmetic import sum_in_order
from layers.logic.selectors.client_values import column, with_numbers

if TYPE_CHECKING:
    from layers.logic.core.report import ClientReport

REWARD, ROUND, COUNT, TOOK, TOLD = "reward", "round", "count", "took_s", "told_s"
RMS_LOSS, LOSS = "rms_loss", "loss"


def with_rewards(
    memory: Mapping[str, Any], planned: Sequence[ClientReport], round: int
) -> dict[str, Any]:
    """Return the memory with the rewards of a round, for all who were asked.

    Who was asked in vain has the mean of the others' rewards. A round that brought nothing leaves
    rewards as they were.

    Args:
        memory: what was known before the round.
        planned: the clients that were asked.
        round: from 1.
    """
    clients = np.array([one.client for one in planned], np.int64)
    counts = column(memory, COUNT, clients, 0.0) + 1
    rewards = {
        one.client: one.samples * loss
        for one in planned
        if one.status == "accepted" and (loss := _loss(one)) is not None
    }
    if rewards:
        mean = sum_in_order(rewards.values()) / len(rewards)
        rewards = {one.client: rewards.get(one.client, mean) for one in planned}
    learned = with_numbers(memory, REWARD, rewards)
    learned = with_numbers(learned, ROUND, {one.client: float(round) for one in planned})
    return with_numbers(learned, COUNT, dict(zip(clients.tolist(), counts.tolist(), strict=True)))


def _loss(report: ClientReport) -> float | None:
    """Return the root of the mean squared loss that an update reported; else its mean loss."""
    loss = report.metrics.get(RMS_LOSS, report.metrics.get(LOSS))
    return None if loss is None else max(loss, 0.0)


def measured_s(
    memory: Mapping[str, Any], planned: Sequence[ClientReport], took_s: float
) -> dict[int, float]:
    """Return the seconds from task to update, or at least so many, of those that have times.

    A client that did not arrive takes at least as long as it was given: the longer of that and of
    what was known before counts.

    Args:
        memory: what was known before the round.
        planned: the clients that were asked.
        took_s: seconds of the round, for those of which no end is known.
    """
    clients = np.array([one.client for one in planned], np.int64)
    measured = {}
    for one, before_s in zip(planned, known_s(memory, clients).tolist(), strict=True):
        if one.times is None:
            continue
        ended_s = took_s if one.times.ended_s is None else one.times.ended_s
        waited_s = max(ended_s - one.times.asked_s, 0.0)
        exact = one.status == "accepted" or np.isnan(before_s)
        measured[one.client] = waited_s if exact else max(waited_s, before_s)
    return measured


def known_s(memory: Mapping[str, Any], clients: np.ndarray) -> np.ndarray:
    """Return t_k of these clients as it was measured, else as they said it, else NaN."""
    took_s = column(memory, TOOK, clients, np.nan)
    return np.where(np.isnan(took_s), column(memory, TOLD, clients, np.nan), took_s)


def timed(memory: Mapping[str, Any]) -> np.ndarray:
    """Return the clients that said how long they take, or were measured, int64 (k,)."""
    kept = [memory[name]["clients"] for name in (TOLD, TOOK) if name in memory]
    return np.unique(np.concatenate(kept)) if kept else np.zeros(0, np.int64)


def timeless(memory: Mapping[str, Any]) -> bool:
    """Return whether all say that they need no time: what is measured is then no device's time."""
    return TOLD in memory and not memory[TOLD]["numbers"].any()
