"""Validation: updates, offers and models are checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from layers.logic.core.messages import MOST_SAMPLES, Offer, Task, Update
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError, Rejected
from layers.logic.round.logic import Logic

MOST = 1e200  # for numbers from clients: no sum of them, weighted by samples, overflows


def check_envelope(update: Update, task: Task, announced: int, most: int) -> None:
    """Check the numbers of an update before any hook processes it.

    Args:
        update: the update.
        task: the task that it answers.
        announced: how many samples the client said that it has.
        most: how many samples hooks can make of them.

    Raises:
        Rejected: the round or the pass is not the task's, the number of samples or steps is
            impossible, or there are more samples than the client can have.
    """
    if update.round != task.round:
        raise Rejected(f"an update of round {update.round} in round {task.round}")
    if update.pass_number != task.pass_number:
        raise Rejected(f"an update of another pass than the {task.pass_number}. of its lane")
    _check_samples(update.samples, announced, most)
    _check_count("number of local steps", update.steps, least=0)


def check_offer(offer: Offer, announced: int, most: int) -> None:
    """Check an offer before a selector sees it.

    Args:
        offer: the offer.
        announced: how many samples the client said that it has.
        most: how many samples hooks can make of them.

    Raises:
        Rejected: the norm, the time or a metric is not finite or above 1e200, the norm or the time
            is negative, the number of samples is impossible, or there are more than the client can
            have.
    """
    _check_samples(offer.samples, announced, most)
    if not 0 <= offer.norm <= MOST:
        raise Rejected(f"an offer of norm {offer.norm}; it must be from 0 to 1e200")
    if not 0 <= offer.upload_s <= MOST:
        raise Rejected(f"an offer with an upload of {offer.upload_s} s; it must be from 0 to 1e200")
    _check_metrics(offer.metrics)


def check_content(update: Update, weights: np.ndarray, buffers: np.ndarray) -> None:
    """Check the decoded vectors against those of the global model, and the metrics.

    Raises:
        Rejected: a vector has a wrong length or type or a value that is not finite, the sum of
            weights and update is not finite, or a metric is not finite or above 1e200.
    """
    largest: dict[str, float] = {}
    for name, vector, like in (
        ("update", update.delta, weights),
        ("buffers", update.buffers, buffers),
    ):
        if vector.shape != like.shape:
            raise Rejected(f"{name} of shape {vector.shape}; the model's is {like.shape}")
        if vector.dtype != np.float32:
            raise Rejected(f"{name} of type {vector.dtype}; it must be float32")
        largest[name] = _largest(vector)
        if not math.isfinite(largest[name]):
            raise Rejected(f"{name} with {int((~np.isfinite(vector)).sum())} values not finite")
    if largest["update"] + _largest(weights) > float(np.finfo(np.float32).max):
        with np.errstate(over="ignore"):
            if not np.isfinite(weights + update.delta).all():
                raise Rejected("update that is finite, but makes a model that is not")
    _check_metrics(update.metrics)


def check_model(state: ServerState, logic: Logic) -> None:
    """Check the next global model, so that a broken one is never sent or kept.

    Raises:
        LogicError: a value is not finite; the state before the round stays valid.
    """
    if not math.isfinite(_largest(state.weights)) or not math.isfinite(_largest(state.buffers)):
        hooks = "".join(f", {type(hook).__name__}" for hook in logic.hooks)
        raise LogicError(
            f"round {state.round + 1}: {type(logic.aggregator).__name__}{hooks} made a model with "
            "values that are not finite; the model before this round is kept; lower the learning "
            "rate (the server's, too) or clip"
        )


def _check_samples(samples: Any, announced: int, most: int) -> None:
    _check_count("sample count", samples, least=1)
    if samples > most:
        with_hooks = "" if most == announced else f", of which hooks make {most} at most"
        raise Rejected(f"a sample count of {samples}; the client announced {announced}{with_hooks}")


def _check_count(name: str, count: Any, least: int) -> None:
    whole = isinstance(count, Integral) and not isinstance(count, bool)
    if not whole or not least <= count <= MOST_SAMPLES:
        raise Rejected(f"a {name} of {count}; it must be a whole number from {least} to 2^53")


def _check_metrics(metrics: Mapping[str, Any]) -> None:
    for name, value in metrics.items():
        if not isinstance(value, (int, float)) or not abs(value) <= MOST:
            raise Rejected(f"a metric {name!r} of {value}; it must be a number up to 1e200")


def _largest(vector: np.ndarray) -> float:
    """Return the largest absolute value, or inf or NaN if there is one, without a copy."""
    with np.errstate(invalid="ignore"):
        return max(abs(float(vector.min(initial=0))), abs(float(vector.max(initial=0))))
