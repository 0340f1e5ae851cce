"""What crosses between the two ends: a task goes down, an offer and an update come up.

The values are frozen and hold nothing but numbers, text and arrays, so they travel as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

Value: TypeAlias = "bool | int | float | str | bytes | np.ndarray | None"
Slot: TypeAlias = "dict[str, Value]"
"""What one hook says to its other half; it travels inside a task, an offer or an update."""


class Tensor(Protocol):
    """Where one tensor lies in the flat vector: ``vector[start:stop].reshape(shape)``."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def start(self) -> int: ...  # noqa: D102
    @property
    def stop(self) -> int: ...  # noqa: D102


Layout: TypeAlias = "Sequence[Tensor]"


@dataclass(frozen=True)
class Training:
    """How a client trains in one round.

    Attributes:
        epochs: passes over the client's samples; ignored when `steps` is given.
        steps: local steps, or None to go by `epochs`.
        batch_size: samples a step; 0 takes all of them.
        learning_rate: learning rate of this round, the schedule already applied.
        momentum: heavy-ball momentum; its buffer starts at zero every round.
        weight_decay: L2 coefficient.
        loss: ``"running"`` reports the mean mini-batch loss while training; ``"received"`` the
            received model's mean loss on the client's samples before the first step, at the cost
            of one more pass over them.
    """

    epochs: int = 1
    steps: int | None = None
    batch_size: int = 10
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    loss: str = "running"


@dataclass(frozen=True, eq=False)
class Task:
    """Down: train from these weights.

    Attributes:
        round: from 1.
        client: the client that is asked.
        seed: of every random draw of this client's local work in this round.
        training: how to train.
        weights: float32 (d,), or empty when a hook put an encoded form into its slot.
        buffers: float32 (b,), the non-trainable state (BatchNorm statistics).
        last_accepted_round: the last round in which an update of this client was accepted; by it
            the client knows which of its memories is the valid one. 0: none was, or the client lost
            its memory.
        offer: whether the client first offers its update and sends it only when granted.
        model_version: of the model that the client starts from: how many rounds had been concluded.
        slots: one a hook that has something to say.
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

    @property
    def has_model(self) -> bool:
        """Whether it brings a model; a task of an earlier round, kept by the server, does not."""
        return bool(self.weights.size or self.slots)

    def without_vectors(self) -> Task:
        """Return the task as the server's state keeps it while it is in flight."""
        return replace(self, weights=EMPTY, buffers=EMPTY, slots={})

    def header(self) -> dict[str, Any]:
        """Return the task as named numbers and text, without vectors and slots."""
        header = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("weights", "buffers", "slots"):
            del header[name]
        return {**header, "training": asdict(self.training)}

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Task:
        """Return the task without vectors that `header` was made from."""
        training = Training(**header["training"])
        return cls(**{**header, "training": training}, weights=EMPTY, buffers=EMPTY)


@dataclass(frozen=True, eq=False)
class Offer:
    """Up, small: the client has trained; the server grants or declines the upload.

    Attributes:
        norm: Euclidean norm of the update over all trainable parameters.
        upload_s: how long its upload will take alone, as the client reckons; 0 if it cannot know.
        metrics: the numbers that the update will carry, e.g. ``loss``.
        at_s: when it arrived, in seconds since the round began; the server fills it in.
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
    """Down, small: the answer to an offer, or word that none will be wanted any more.

    Attributes:
        dated_s: the moment that the verdict counts from, in seconds since the round began, if that
            was before it was found. Virtual time goes by it, real time cannot.
    """

    round: int
    client: int
    granted: bool
    dated_s: float | None = None


@dataclass(frozen=True, eq=False)
class Update:
    """Up: what the client made of a task.

    Attributes:
        samples: number of the client's samples, n_k.
        steps: local steps that were taken.
        delta: float32 (d,), trained minus received weights, or empty when a hook put an encoded
            form into its slot.
        buffers: float32 (b,) after training.
        metrics: ``loss`` and whatever hooks add.
        slots: one a hook that has something to say.
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


@dataclass(frozen=True)
class ClientLost:
    """Nothing will come from this client in this round, and why.

    Attributes:
        reason: one line.
        traceback: of the client's side where its own code failed, else empty.
        rejected: something came, and was rejected before it could be an update.
    """

    round: int
    client: int
    reason: str
    traceback: str = ""
    rejected: bool = False


@dataclass(frozen=True)
class StateLost:
    """The client of this task does not have the memory any more that the task counts on.

    It was killed in the meantime, and came back without; it waits for a task to begin anew with.
    """

    round: int
    client: int


@dataclass(frozen=True)
class TimerFired:
    """The moment has come for which the server's half of the round set its timer."""


Event: TypeAlias = "Offer | Update | ClientLost | StateLost | TimerFired"
EMPTY = np.zeros(0, np.float32)
EMPTY.setflags(write=False)
