"""The messages between the two ends: a task goes down, an offer and an update come up.

They are frozen and hold only numbers, text and arrays, so they can be sent as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from layers.logic.errors import Rejected

Value: TypeAlias = "bool | int | float | str | bytes | np.ndarray | None"
Slot: TypeAlias = "dict[str, Value]"
"""The data from one half of a hook to the other, sent inside a task, an offer or an update."""


def vector_in(slot: Slot, name: str, what: str, dtype: type, size: int | None = None) -> np.ndarray:
    """Return the vector with this name in a slot from the other end.

    Args:
        slot: the slot.
        name: the name.
        what: what the vector is, in messages.
        dtype: the type of its values, which are finite.
        size: the number of its values; None: any.

    Raises:
        Rejected: there is no such vector; the message says what there is.
    """
    value = slot.get(name)
    if not isinstance(value, np.ndarray):
        found = f"a {type(value).__name__}" if name in slot else "missing"
    elif value.dtype != dtype or value.ndim != 1 or size not in (None, value.size):
        found = f"{value.dtype} of shape {value.shape}"
    elif not np.isfinite(value).all():
        found = "not finite"
    else:
        return value
    length = "" if size is None else f" of {size} finite values"
    raise Rejected(f"a slot without the {np.dtype(dtype)} {what}{length}: {name!r} is {found}")


OPTIONAL = {"optional": True}
"""The metadata of a field that does not travel while it has its default."""

CANNOT_TRAIN = "cannot-train"
"""The code of a client that cannot train on the model that it was sent."""

MOST_SAMPLES = 1 << 53  # of one client: exact in float64, and no weighted sum overflows


class Tensor(Protocol):
    """Where one tensor lies in the flat vector: ``vector[start:stop].reshape(shape)``."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


Layout: TypeAlias = "Sequence[Tensor]"


@dataclass(frozen=True)
class Training:
    """How a client trains in one round.

    Attributes:
        epochs: passes over the client's samples; ignored when `steps` is given.
        steps: local steps, or None to go by `epochs`.
        batch_size: samples a step; 0 takes all of them.
        learning_rate: learning rate of this round, after the schedule.
        momentum: heavy-ball momentum, of an optimiser that has one.
        weight_decay: factor of the weights in their decay.
        loss: ``"running"`` reports the mean mini-batch loss during training; ``"received"`` the
            received model's mean loss on the client's samples before the first step, which costs
            one more pass over them.
    """

    epochs: int = 1
    steps: int | None = None
    batch_size: int = 10
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    loss: str = "running"

    def steps_over(self, samples: int) -> int:
        """Return how many local steps it has over this many samples, 1 or more."""
        if self.steps is not None:
            return self.steps
        return self.epochs * -(-samples // (min(self.batch_size, samples) or samples))


@dataclass(frozen=True, eq=False)
class Task:
    """Down: asks a client to train from these weights.

    Attributes:
        round: number of the round, from 1. A round that sends tasks more than once numbers each of
            these moments: the numbers increase, and no client has two tasks with one number.
        client: number of the client.
        seed: seed of every random draw of this client's local work in this round.
        training: how to train.
        weights: float32 (d,); empty if a hook put an encoded form into its slot.
        buffers: float32 (b,), the non-trainable state (BatchNorm statistics).
        last_accepted_round: the last round in which an update of this client was accepted, in a
            later pass this round itself; the client takes the memory after it. 0: no update was
            accepted, or the client lost its memory.
        offer: whether the client first offers its update, and sends it only if that is granted.
        model_version: version of the model that the client starts from: the number of rounds that
            were concluded before.
        slots: the slots of the hooks that have one.
        pass_number: the pass of the client's lane that it belongs to, from 1 (see `PlannedLane`).
    """

    round: int
    client: int
    seed: int
    training: Training
    weights: np.ndarray
    buffers: np.ndarray
    last_accepted_round: int = 0
    offer: bool = False
    model_version: int = 0
    slots: dict[str, dict[str, bool | int | float | str | bytes | np.ndarray | None]] = field(
        default_factory=dict
    )
    pass_number: int = field(default=1, metadata=OPTIONAL)

    @property
    def has_model(self) -> bool:
        """Whether it brings a model; a task of an earlier round, kept by the server, does not."""
        return bool(self.weights.size or self.slots)

    @property
    def step(self) -> tuple[int, int]:
        """Its place among the client's steps in a round (see `RoundMemory`)."""
        return 1, self.pass_number

    def without_vectors(self) -> Task:
        """Return the task without vectors and slots, as the server's state keeps it in flight."""
        return replace(self, weights=EMPTY, buffers=EMPTY, slots={}, pass_number=1)

    def header(self) -> dict[str, Any]:
        """Return the task as named numbers and text, without vectors, slots and pass."""
        header = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("weights", "buffers", "slots", "pass_number"):
            del header[name]
        return {**header, "training": asdict(self.training)}

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Task:
        """Return the task, without vectors and slots, that `header` was made from."""
        training = Training(**header["training"])
        return cls(**{**header, "training": training}, weights=EMPTY, buffers=EMPTY)


@dataclass(frozen=True, eq=False)
class Offer:
    """Up, small: the client has trained; the server grants or declines the upload.

    Attributes:
        round: number of the round, from 1.
        client: number of the client.
        samples: number of the client's samples, n_k.
        norm: Euclidean norm of the update over all trainable parameters.
        upload_s: the client's estimate of the seconds of its upload alone; 0: unknown.
        metrics: the metrics of the update, e.g. ``loss``.
        at_s: time of arrival, in seconds since the round began; the server fills it in.
    """

    round: int
    client: int
    samples: int
    norm: float
    upload_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    at_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """Down, small: grants or declines a client's upload, in answer to its offer or before it.

    Attributes:
        round: number of the round, from 1.
        client: number of the client.
        granted: whether the client may send its update.
        dated_s: time from which the verdict is valid, in seconds since the round began, if that is
            earlier than now; None: now. Virtual time uses it, real time cannot.
    """

    round: int
    client: int
    granted: bool
    dated_s: float | None = None


@dataclass(frozen=True, eq=False)
class Update:
    """Up: the result of a task.

    Attributes:
        round: number of the round, from 1.
        client: number of the client.
        samples: number of the client's samples, n_k.
        steps: number of local steps.
        delta: float32 (d,), trained minus received weights; empty if a hook put an encoded form
            into its slot.
        buffers: float32 (b,) after training.
        metrics: ``loss``, and what hooks add.
        slots: the slots of the hooks that have one.
        pass_number: the pass of the client's lane to which it belongs, from 1.
        cannot_train: whether the client says that it cannot train on the model that it was sent:
            its loss or its update is not finite.
    """

    round: int
    client: int
    samples: int
    steps: int
    delta: np.ndarray
    buffers: np.ndarray
    metrics: dict[str, float] = field(default_factory=dict)
    slots: dict[str, dict[str, bool | int | float | str | bytes | np.ndarray | None]] = field(
        default_factory=dict
    )
    pass_number: int = field(default=1, metadata=OPTIONAL)
    cannot_train: bool = field(default=False, metadata=OPTIONAL)


def no_update(task: Task, samples: int) -> Update:
    """Return the answer to a task with a model on which the client cannot train.

    Its offer has NaN as its norm.
    """
    return Update(
        task.round,
        task.client,
        samples,
        steps=0,
        delta=EMPTY,
        buffers=EMPTY,
        metrics={"norm": math.nan} if task.offer else {},
        pass_number=task.pass_number,
        cannot_train=True,
    )


EMPTY = np.zeros(0, np.float32)
EMPTY.setflags(write=False)
