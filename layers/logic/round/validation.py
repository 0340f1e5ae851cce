"""Validation: updates, offers and models are checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from layers.logic.checks.returned import BROKEN_ADVICE, NOT_FINITE
from layers.logic.core.messages import MOST_SAMPLES, Offer, Slot, Task, Update
from layers.logic.core.state import ServerState
from layers.logic.errors import CannotTrain, NotUsable, Rejected
from layers.logic.numeric.vectors import LARGEST, Excess, excess, largest
from layers.logic.record_size import recorded_bytes, shortened
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.storage import slots_bytes

MOST = 1e200  # for numbers from clients: no sum of them, weighted by samples, overflows
MOST_METRICS = 100  # of an update or an offer; they are recorded
LONGEST_METRIC = 80  # bytes of a metric's name in a record


def check_envelope(
    update: Update, task: Task, announced: int, most: int, steps: int | None
) -> None:
    """Check the numbers of an update before any hook processes it.

    Args:
        update: the update.
        task: the task that it answers.
        announced: how many samples the client said that it has.
        most: how many samples hooks can make of them.
        steps: how many local steps the task has over all of them; None: any number may be.

    Raises:
        Rejected: the round or the pass is not the task's, the number of samples or steps is
            impossible, or there are more samples than the client can have, or more steps than the
            task has.
    """
    if update.round != task.round:
        raise Rejected(f"an update of round {update.round} in round {task.round}")
    if type(update.pass_number) is not int or update.pass_number != task.pass_number:
        raise Rejected(f"an update of another pass than the {task.pass_number}. of its lane")
    if update.cannot_train:
        raise CannotTrain("it cannot train: its loss or its update is not finite")
    _check_samples(update.samples, announced, most)
    _check_count("number of local steps", update.steps, least=0)
    if steps is not None and update.steps > steps:
        raise Rejected(f"a number of local steps of {update.steps}; its task has {steps} at most")


def check_slots(
    slots: Mapping[str, Slot], pipeline: ServerPipeline, asked: Collection[str] | None = None
) -> None:
    """Check the names and the size of the slots in an update or an answer before a hook sees them.

    Args:
        slots: the slots.
        pipeline: the server sides, which know their names and the most bytes.
        asked: the names of the slots that the answer must have; None: it is an update, which may
            have those of the hooks.

    Raises:
        Rejected: a slot has a name that none of them has, one is missing in an answer, or all slots
            together have more than `Logic.most_slot_bytes`.
    """
    known = {*pipeline.memory} if asked is None else {*asked}
    if unknown := slots.keys() - known:
        name = shortened(min(unknown), LONGEST_METRIC)
        raise Rejected(f"{len(unknown)} slots of no hook of this run, such as {name!r}")
    if asked is not None and (missing := known - slots.keys()):
        raise Rejected(f"an answer without the slot {min(missing)!r}")
    size, most = slots_bytes(slots), pipeline.most_slot_bytes
    if size > most:
        raise Rejected(f"slots of {size} bytes; with this model they may have {most}")


def check_offer(offer: Offer, announced: int, most: int) -> None:
    """Check an offer before a selector sees it; see `check_envelope`.

    Raises:
        Rejected: the norm, the time or a metric is not finite or above 1e200, the norm or the time
            is negative, the number of samples is impossible, or there are more than the client can
            have.
    """
    _check_samples(offer.samples, announced, most)
    if math.isnan(offer.norm):
        raise CannotTrain("an offer of norm nan: it cannot train")
    if not 0 <= offer.norm <= MOST:
        raise Rejected(f"an offer of norm {offer.norm}; it must be from 0 to 1e200")
    if not 0 <= offer.upload_s <= MOST:
        raise Rejected(f"an offer with an upload of {offer.upload_s} s; it must be from 0 to 1e200")
    _check_metrics(offer.metrics)


def check_content(
    update: Update,
    weights: np.ndarray,
    peak_before: float,
    buffers: np.ndarray,
    most: float | None,
) -> float:
    """Check the decoded vectors against those of the global model, and the metrics.

    Returns:
        How far the update goes, 0 or more, by which updates are compared: the largest absolute
        value of the update as a share of that of the weights plus 1, or, if that is more, the root
        of the same share of the client's change of the buffers.

    Args:
        update: the decoded update.
        weights: float32 (d,), the weights that its client started from.
        peak_before: `largest` of the weights.
        buffers: float32 (b,), the buffers that its client started from.
        most: the largest norm of an update, as a multiple of that of the weights plus 1; None: no
            bound (see `Logic.max_update`).

    Raises:
        Rejected: a vector has a wrong length or type, a value that is not finite or a norm above
            its bound, the sum of weights and update is not finite, or a metric is not finite or
            above 1e200.
    """
    peaks: dict[str, float] = {}
    for name, vector, like in (
        ("update", update.delta, weights),
        ("buffers", update.buffers, buffers),
    ):
        if vector.shape != like.shape:
            raise Rejected(f"{name} of shape {vector.shape}; the model's is {like.shape}")
        if vector.dtype != np.float32:
            raise Rejected(f"{name} of type {vector.dtype}; it must be float32")
        peaks[name] = largest(vector)
        if not math.isfinite(peaks[name]):
            raise CannotTrain(f"{name} with {int((~np.isfinite(vector)).sum())} values not finite")
    peak = peaks["update"]
    if above := excess(update.delta, weights, most, peak=peak, like_peak=peak_before):
        raise Rejected(f"update of norm {above.norm:.3g}; {_bound(above, most)}")
    # Buffers hold variances, which grow with the square of the model's values.
    square, peak_buffers = most and most**2, peaks["buffers"]
    if above := excess(update.buffers, buffers, square, since=buffers, peak=peak_buffers):
        raise Rejected(f"buffers that moved by {above.norm:.3g}; {_bound(above, most)}")
    if peak + peak_before > LARGEST:
        with np.errstate(over="ignore"):
            if not np.isfinite(weights + update.delta).all():
                raise Rejected("update that is finite, but makes a model that is not")
    _check_metrics(update.metrics)
    changed = largest(np.subtract(update.buffers, buffers, dtype=np.float64))
    return max(peak / (peak_before + 1), math.sqrt(changed / (largest(buffers) + 1)))


def check_masked(update: Update) -> None:
    """Check an update whose values only its hook can check: it has no vectors.

    Raises:
        Rejected: it has vectors, or a metric is not finite or above 1e200.
    """
    if update.delta.size or update.buffers.size:
        raise Rejected("an update with vectors that can be read, where only the sum is to be read")
    _check_metrics(update.metrics)


def check_model(
    state: ServerState, logic: Logic, before: ServerState | None = None, by: str = ""
) -> None:
    """Check the next global model, so that a broken one is never sent or kept.

    Args:
        state: the state with the next model.
        logic: logic of the experiment.
        before: the state before the round; None: the model may be anything that is finite.
        by: the part that made the model; empty: all parts.

    Raises:
        NotUsable: a value is not finite, or the round moved the model farther than an update may
            (see `Logic.max_update`); the state before the round stays valid.
    """
    parts = [type(part).__name__ for part in (logic.aggregator, *logic.hooks)]
    who = f"round {state.round + 1}: {by or ', '.join(parts)}"
    peak = largest(state.weights)
    if not math.isfinite(peak) or not math.isfinite(largest(state.buffers)):
        raise NotUsable(f"{who} {NOT_FINITE}; {BROKEN_ADVICE}")
    if before is None or state.weights is before.weights:
        return
    most = logic.max_update
    if above := excess(state.weights, before.weights, most, since=before.weights, peak=peak):
        moved = f"moved the model by {above.norm:.3g}"
        raise NotUsable(f"{who} {moved}; {_bound(above, most)}; {BROKEN_ADVICE}")


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
    if len(metrics) > MOST_METRICS:
        raise Rejected(f"{len(metrics)} metrics; there may be at most {MOST_METRICS}")
    for name, value in metrics.items():
        if recorded_bytes(str(name)) > LONGEST_METRIC:
            raise Rejected(f"a metric whose name takes more than {LONGEST_METRIC} recorded bytes")
        if not isinstance(value, (int, float)) or not abs(value) <= MOST:
            broken = isinstance(value, float) and not math.isfinite(value)
            kind = CannotTrain if broken else Rejected
            raise kind(f"a metric {name!r} of {value}; it must be a number up to 1e200")


def _bound(above: Excess, most: float | None) -> str:
    return f"with logic.max_update {most:g} it may be {above.bound:.3g}"
