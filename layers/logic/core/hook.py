"""A hook: one idea that works on tasks and updates, with both of its ends in one file."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from layers.logic.core.engine import Data
from layers.logic.core.messages import EMPTY, Layout, Slot, Task, Training, Update
from layers.logic.core.state import ServerState
from layers.logic.seeds import generator

if TYPE_CHECKING:
    from layers.logic.round.logic import Auxiliary, Logic


Moment: TypeAlias = 'Literal["cohort", "returned"]'
"""When a server half may ask clients: the cohort before its tasks, or those who returned."""


MOMENTS: tuple[Moment, ...] = ("cohort", "returned")


@dataclass
class Context:
    """What a hook's half sees besides the value that passes through it.

    Attributes:
        round: from 1.
        client: the client concerned; None in the server's `conclude`.
        seed: the stream that `rng` draws from, different for each hook, end, round and client.
        training: how the client trains in this round.
        layout: where each tensor lies in the flat vector.
        memory: what this half of this hook keeps; on the server it can be changed in
            `on_accepted` and `conclude` only, which run in the order of the plan.
        slot: what this hook's other half said (in `receive`), or what to say to it (in `send`).
        start: float32 (d,), the weights that the round, or the local training, started from.
        clients: on the server, how many clients there are, N; 0 on a client.
        gradient: on a client, float32 (d,), the received model's mean gradient over all of the
            client's samples, if a hook asked for it (`Hook.received_gradient`); else empty.
        shared: on a client, the samples that every client was given, if a hook asked for them
            (`Hook.shared`).
        auxiliary: on a server that holds samples of its own (`Hook.held_out`), trains on them; see
            `Logic.auxiliary`.
        answers: on the server, what clients answered to the selector's surveys: question, then
            client; not checked.
    """

    round: int
    client: int | None
    seed: int
    training: Training
    layout: Layout
    memory: Mapping[str, Any]
    slot: Slot = field(default_factory=dict)
    start: np.ndarray = field(default_factory=lambda: EMPTY)
    clients: int = 0
    gradient: np.ndarray = field(default_factory=lambda: EMPTY)
    shared: Data | None = None
    auxiliary: Auxiliary | None = None
    answers: Mapping[str, Mapping[int, Slot]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    def rng(self, purpose: str = "") -> np.random.Generator:
        """Return a generator for one purpose; a second call starts the same draws again."""
        return generator(self.seed, purpose)

    def record(self, **numbers: float) -> None:
        """Give numbers to the round's record; heard in the server's `conclude` only."""
        self.numbers.update(numbers)

    def keep(self, **values: Any) -> None:
        """Keep named arrays and numbers in this half's memory."""
        if not isinstance(self.memory, MutableMapping):
            raise TypeError(
                "a server half changes its memory in on_accepted() and conclude() only: they run "
                "in the order of the plan, so that the order of arrival changes nothing"
            )
        self.memory.update(values)


class ServerHalf:
    """The server's end of a hook; every method hands its argument on."""

    asks: frozenset[Moment] = frozenset()
    """The moments at which `ask` is called; with "returned", folding waits for the answers."""

    def ask(self, moment: Moment, clients: Sequence[int], context: Context) -> Slot | None:
        """Return a question to these clients, which their `ClientHalf.answer` gets, or None."""
        return None

    def on_answers(self, moment: Moment, answers: Mapping[int, Slot], context: Context) -> None:
        """Take the answers, by client; a client of the cohort that did not answer gets no task."""

    def send(self, task: Task, context: Context) -> Task:
        """Change an outgoing task."""
        return task

    def receive(self, update: Update, context: Context) -> Update:
        """Undo what the client's `send` did; raise `Rejected` if that cannot be."""
        return update

    def on_accepted(self, update: Update, context: Context) -> None:
        """Take note of an update that counts; called in the order of the plan.

        In a lane of several clients the update comes without its delta.
        """

    def conclude(self, state: ServerState, context: Context) -> ServerState:
        """Change the state after aggregation; `context.start` is the model before it."""
        return state


class ClientHalf:
    """The client's end of a hook; every method hands its argument on."""

    def answer(self, moment: Moment, question: Slot, context: Context) -> Slot:
        """Answer the server half's question, without this half's memory."""
        return {}

    def receive(self, task: Task, context: Context) -> Task:
        """Undo what the server's `send` did."""
        return task

    def samples(self, data: Data, context: Context) -> Data:
        """Change what is trained on; called after `receive`."""
        return data

    def gradient(self, gradient: np.ndarray, weights: np.ndarray, context: Context) -> None:
        """Change the gradient of one local step in place; both are float32 (d,).

        Called before weight decay and momentum; the weights are only to be read.
        """

    def send(self, update: Update, context: Context) -> Update:
        """Change an outgoing update."""
        return update


class Hook:
    """One idea: its settings, and how to make its two halves.

    The settings are the attributes of a frozen dataclass; the halves keep what they must remember
    in their context's memory, so that it can be saved and moved.
    """

    received_loss: bool = False
    """Whether the clients must report the received model's loss (see `Training.loss`)."""

    received_gradient: bool = False
    """Whether the client's half needs the received model's gradient (see `Context.gradient`)."""

    shared: float = 0.0
    """Share of the training samples that are taken out and given to every client."""

    held_out: float = 0.0
    """Share of the training samples that are taken out for the server to train on by itself."""

    def server(self) -> ServerHalf:
        """Return the server's half."""
        return ServerHalf()

    def client(self) -> ClientHalf:
        """Return the client's half."""
        return ClientHalf()

    @property
    def corrects(self) -> bool:
        """Whether the client's half works on gradients."""
        return type(self.client()).gradient is not ClientHalf.gradient

    @property
    def encodes_update(self) -> bool:
        """Whether updates travel in this hook's slot, and their delta is left empty."""
        return False

    @property
    def encodes_model(self) -> bool:
        """Whether this hook decides in what form the model goes down."""
        return False

    def check(self, logic: Logic) -> None:
        """Raise `LogicError` if this hook cannot work in `logic`; called before anything runs."""
