"""What travels between a simulation and its workers: jobs go out, and what came of them returns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedmx.run import state_tree
from layers.logic import Answer, ClientLedger, Question, Task, Update
from layers.network import MessageCodec


@dataclass(frozen=True)
class Build:
    """Out, first: the experiment whose parts a worker makes.

    Attributes:
        experiment: its text, with all defaults.
        source: what messages call it.
        folder: where the modules are that it names; None: among the installed ones.
        data: the user's data folder; None: as the environment says.
        cache: the folder for downloads; None: as the environment says.
        download: whether data that are nowhere may be downloaded.
    """

    experiment: str
    source: str
    folder: str | None
    data: str | None
    cache: str | None
    download: bool


@dataclass(frozen=True, eq=False)
class EncodedState:
    """A client's ledger on its way: a state tree's text, and its arrays by name."""

    text: str
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, ledger: ClientLedger) -> EncodedState:
        """Return the ledger as it travels.

        Raises:
            TypeError: a hook keeps what is no array, number or text.
        """
        return cls(*state_tree.encode(ledger.tree()))

    def decode(self) -> ClientLedger:
        """Return the ledger that this was made of."""
        return ClientLedger.of_tree(state_tree.decode(self.text, self.arrays))


@dataclass(frozen=True, eq=False)
class Train:
    """Out: a client's task, and what its hooks kept."""

    task: Task
    ledger: EncodedState


@dataclass(frozen=True, eq=False)
class TrainedUpdate:
    """Back: what the client would send, its bytes on the wire, and what its hooks keep now."""

    update: Update
    up_bytes: int
    ledger: EncodedState


@dataclass(frozen=True, eq=False)
class AskClients:
    """Out: a question to some clients."""

    question: Question
    clients: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """Back: their answers in the same order, and the bytes of each on the wire."""

    answers: tuple[Answer, ...]
    up_bytes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Score:
    """Out: a model, and on which rows of the server's samples to try it.

    Attributes:
        start: the first row, a multiple of `batch_size`.
        stop: the row behind the last one.
    """

    weights: np.ndarray
    buffers: np.ndarray
    batch_size: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Back: for each row whether the model's answer was right, and its loss."""

    right: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class JobFailed:
    """Back: the code of the experiment, or of a component that it names, raised.

    Attributes:
        what: the error's type and text.
        traceback: on the worker's side.
        place: FILE:LINE of the user's own code where it was raised, if any.
        client: on whose behalf; None: nobody's, the worker cannot work at all.
    """

    what: str
    traceback: str
    place: str
    client: int | None = field(default=None)


JOBS = MessageCodec(
    {
        1: Build,
        2: Train,
        3: TrainedUpdate,
        4: AskClients,
        5: Answers,
        6: Score,
        7: ScoredRows,
        8: JobFailed,
    }
)
