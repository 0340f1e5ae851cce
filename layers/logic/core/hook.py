"""A hook: one idea that changes tasks and updates, with both of its ends in one file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from numbers import Real
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from layers.logic.core.asset import Asset
from layers.logic.core.declaration import Part, Trait
from layers.logic.core.engine import Data
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.messages import EMPTY, Layout, Slot, Task, Training, Update
from layers.logic.core.state import Memory, ServerState
from layers.logic.secrets import Secret, SecretDraws
from layers.logic.seeds import generator

Auxiliary: TypeAlias = Callable[[np.ndarray, np.ndarray, Training, int], np.ndarray]
"""A function that trains on samples of the server: it takes weights (d,), buffers (b,), how to
train, and a seed, and returns the weights (d,) after training."""


class TrainsOnAsset(Protocol):
    """A function that trains on the samples of an asset."""

    def __call__(
        self,
        name: str,
        weights: np.ndarray,
        buffers: np.ndarray,
        training: Training,
        seed: int,
        /,
        *,
        loss: Any = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (d,) and buffers (b,) after training.

        Args:
            name: the asset.
            weights: float32 (d,), the weights before.
            buffers: float32 (b,), the buffers before.
            training: how to train.
            seed: seed of every random draw.
            loss: what the steps minimise, such as `Distillation(reference=None)`; None: the
                cross-entropy of the model.
            arrays: the arrays that the loss reads, by name, such as "soft_labels" (n, classes);
                None: none.
        """


OutputsOnAsset: TypeAlias = Callable[[str, np.ndarray, np.ndarray], np.ndarray]
"""A function that returns a model's outputs, float32 (n, outputs), for the n samples of an asset:
it takes the asset's name, weights (d,) and buffers (b,)."""

Trains: TypeAlias = Callable[[np.ndarray, np.ndarray, Training, int], bool]
"""A function that says whether a model can be trained on samples of the server: it takes weights
(d,), buffers (b,), how to train, and a seed."""


class Stage(IntEnum):
    """The place of a hook among the others, in the order in which the server sends.

    A client that sends, and a server that concludes a round, use the hooks in this order.
    """

    PLAIN = 1
    """The hook works on samples, gradients, updates and models as they are."""

    MODEL = 2
    """The hook encodes the model, so it comes after every hook that changes the model."""

    UPDATE = 3
    """The hook encodes the update, so it comes after every hook that works on gradients or
    updates."""


Phase: TypeAlias = 'Literal["cohort", "returned"]'
"""When a server side may ask clients: the cohort before its tasks, or the returned clients."""


PHASES: tuple[Phase, ...] = ("cohort", "returned")


@dataclass(frozen=True)
class Facilities:
    """The abilities of a server besides aggregation; a logic built by hand has none of them.

    Attributes:
        auxiliary: trains a model on the samples that the server keeps (`Hook.held_out`).
        train_on_asset: trains a model on an asset.
        outputs_on_asset: returns the outputs of a model for an asset.
        asset_sizes: the number of samples of each asset, by name.
        trains: says whether a model can be trained on samples of the server; None: only clients
            can tell.
        secret: the server's secret; None: the draws follow the seed, as in a simulation.
    """

    auxiliary: Auxiliary | None = None
    train_on_asset: TrainsOnAsset | None = None
    outputs_on_asset: OutputsOnAsset | None = None
    asset_sizes: Mapping[str, int] = field(default_factory=dict)
    trains: Trains | None = None
    secret: Secret | None = None


class Identity(Protocol):
    """Signs with a client's certificate, and verifies what other clients have signed."""

    def sign(self, content: bytes) -> bytes:
        """Return a proof that the owner of the certificate has signed this."""

    def verify(self, client: int, proof: bytes, content: bytes) -> None:
        """Check that the client of this number has signed this.

        Raises:
            ValueError: it has not, or no authority of this client has certified it.
        """


@dataclass(frozen=True)
class Process:
    """The process of a deployed client.

    Attributes:
        kept: the objects of hooks, by name, that live in this process alone and are never written.
        identity: signs with the client's certificate; None: it has none.
    """

    kept: dict[str, Any] = field(default_factory=dict)
    identity: Identity | None = None


@dataclass
class Context:
    """The information that both sides of a hook have besides the task or update.

    Attributes:
        round: number of the round, from 1.
        client: number of the client; None in the server side's methods without a client.
        seed: seed of `rng`, different for each hook, end, round and client.
        training: how the client trains; for a late update, as its task of an earlier round said.
            Without a client, how the clients of this round train.
        layout: where each tensor lies in the flat vector.
        memory: memory of this side.
        slot: the data from this hook's other side (in `receive`, and in `on_accepted` those of the
            accepted update), or for it (in `send`).
        start: float32 (d,), the weights that the round, or the local training, started from.
        clients: N, the number of clients that take part; 0 on a client whose logic does not say. A
            hook that uses it sets `counts_clients`.
        own_secret: the secret of `secret`, different for each hook, end, round and client.
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
    own_secret: Secret = field(default_factory=lambda: Secret.elsewhere("an end"), repr=False)

    def rng(self, purpose: str = "") -> np.random.Generator:
        """Return a generator for one purpose; each call starts the same draws again."""
        return generator(self.seed, purpose)

    def secret(self, purpose: str, *covered: np.ndarray) -> SecretDraws:
        """Return draws that nobody can foresee who lacks the secret of this end.

        In a simulation they follow the seed. A deployed server or client has a secret of its own,
        which it never sends. Each call starts the same draws again.

        Args:
            purpose: what the draws are for.
            covered: the values that they hide (see `Secret.draws`).

        Raises:
            SecretMissing: a deployed run is followed again where its secret is not.
        """
        return self.own_secret.draws(purpose, *covered)

    def keep(self, **values: Any) -> None:
        """Keep named arrays and numbers in this side's memory.

        Raises:
            TypeError: a server side calls this outside `on_accepted`, `conclude` and `on_removed`.
        """
        if not isinstance(self.memory, MutableMapping):
            raise TypeError(
                "a server side changes its memory in on_accepted() and conclude() only: they run "
                "in the order of the plan, so that the order of arrival changes nothing"
            )
        self.memory.update(values)


@dataclass
class ClientContext(Context):
    """The context of a client side, and of a trainer.

    Attributes:
        run_seed: seed of `run_rng`, the same in every round.
        gradient: float32 (d,), the received model's mean gradient over all of the client's samples,
            if a hook requires it (`Need.RECEIVED_GRADIENT`); otherwise empty.
        assets: the assets that this hook declares, by name (`Hook.assets`).
        initial: float32 (d,), the model that the run starts from, for a trainer; empty if a client
            does not know it.
        own: bool (d,), which weights stay on this client; empty if all are sent.
        round_memory: named arrays, numbers and texts that the trainer and the client sides of all
            hooks share within the round: what one puts into it, those that are called later find
            there, from the first `answer` to the last. It begins empty, also if the server repeats
            the round, or if the client has lost its memory.
        process: the client's process; None: the client is simulated.
        term: the term of this side (`ClientSide.term`).
    """

    run_seed: int = 0
    gradient: np.ndarray = field(default_factory=lambda: EMPTY)
    assets: Mapping[str, Data] = field(default_factory=dict)
    initial: np.ndarray = field(default_factory=lambda: EMPTY)
    own: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    round_memory: Memory = field(default_factory=dict)
    process: Process | None = None
    term: GradientTerm | None = None

    def run_rng(self, purpose: str = "") -> np.random.Generator:
        """Return a generator that makes the same draws in every round of a client."""
        return generator(self.run_seed, purpose)


@dataclass
class ServerContext(Context):
    """The context of a server side.

    Its memory changes in `on_accepted`, `conclude` and `on_removed` only.

    Attributes:
        shared_seed: seed of `shared_rng`, the same for all hooks, different in each round.
        base: the version of the model that the client's last accepted update started from; None: it
            has no such update, or the context belongs to no client.
        answers: the clients' answers to the selector's surveys, by question, then by client; they
            are not checked.
        auxiliary: trains a model on the samples that the server keeps (`Facilities.auxiliary`).
        train_on_asset: trains a model on an asset (`Facilities.train_on_asset`).
        outputs_on_asset: returns a model's outputs for an asset (`Facilities.outputs_on_asset`).
        asset_sizes: the number of samples of each asset, by name.
        max_update: the largest norm of an update, as a multiple of the model's norm plus 1; None:
            no bound.
        numbers: the numbers that `record` has added to the round's record.
        aggregate: the memory of the aggregator before the round.
        samples: the numbers of samples that clients have announced, by client.
        masked: whether updates are masked, so that only sums can be read.
    """

    shared_seed: int = 0
    base: int | None = None
    answers: Mapping[str, Mapping[int, Slot]] = field(default_factory=dict)
    auxiliary: Auxiliary | None = None
    train_on_asset: TrainsOnAsset | None = None
    outputs_on_asset: OutputsOnAsset | None = None
    asset_sizes: Mapping[str, int] = field(default_factory=dict)
    max_update: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    aggregate: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[int, int] = field(default_factory=dict)
    masked: bool = False

    def shared_rng(self, purpose: str) -> np.random.Generator:
        """Return a generator whose draws do not depend on the hooks that the server has."""
        return generator(self.shared_seed, purpose)

    def record(self, **numbers: float) -> None:
        """Add numbers to the round's record; this has an effect in `conclude` only.

        Scalars of numpy, and arrays of one value, are numbers, too.

        Raises:
            TypeError: one is no number, or no float can hold it.
        """
        self.numbers.update({name: _recorded(name, one) for name, one in numbers.items()})


def _recorded(name: str, value: object) -> float:
    """Return a value of `record` as a plain number."""
    one = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    try:
        if isinstance(one, int):
            float(one)  # TensorBoard takes nothing else
            return one
        if isinstance(one, Real):
            return float(one)
    except OverflowError:
        raise TypeError(f"record() takes no number as {name} that a float cannot hold") from None
    shape = f" and shape {value.shape}" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"record() takes one number as {name}, not an object of {type(value).__name__}{shape}"
    )


H = TypeVar("H", bound="Hook")


class ServerSide(Generic[H]):
    """The server's end of a hook; by default every method returns its argument unchanged.

    A side lives for one round. What it keeps longer, so that it can be saved and moved, is in its
    context's memory.

    Args:
        hook: the hook, with its settings.
    """

    def __init__(self, hook: H) -> None:
        self.hook = hook

    asks: frozenset[Phase] = frozenset()
    """The phases in which `ask` is called; with "returned", folding waits for the answers."""

    def warm_up(self, state: ServerState, context: ServerContext) -> ServerState:
        """Return the state before round 1, changed; if round 1 is repeated, this is, too."""
        return state

    def leave_out(self, clients: Sequence[int], context: ServerContext) -> Mapping[int, str]:
        """Return the clients of the cohort that get no task, each with the reason.

        It is called once in a round, before anything is asked or sent.
        """
        return {}

    def ask(self, phase: Phase, clients: Sequence[int], context: ServerContext) -> Slot | None:
        """Return a question to these clients, for their `ClientSide.answer`; None: no question."""
        return None

    def on_answers(
        self, phase: Phase, answers: Mapping[int, Slot], context: ServerContext
    ) -> bool | None:
        """Take the answers, by client; return True to ask the clients that answered once more.

        A client of the cohort that does not answer each question gets no task.
        """
        return None

    def discard(
        self, phase: Phase, clients: Sequence[int], context: ServerContext
    ) -> Mapping[int, str]:
        """Return the clients that are left out after the last answers, each with the reason.

        It is called once in each phase of `asks`. At "cohort" they get no task; at "returned"
        their updates do not count, and an update in a lane of several clients takes those of the
        whole lane with it.
        """
        return {}

    def reveal(self, state: ServerState, context: ServerContext) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of the clients' updates, float32 (d,), and of their buffers, (b,).

        A hook that overrides it masks updates, as secure aggregation does: its client's `send`
        leaves `delta` and `buffers` empty and fills its slot, its `receive` checks the slot, and
        `on_accepted` adds it to a sum. Nothing else sees single updates; parts that need them are
        refused (`Trait.MASKED`). It is called after the updates that count, before aggregation.

        Args:
            state: the state before the round.
            context: the context.
        """
        raise NotImplementedError

    @property
    def sums(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """After `reveal`, the sums of what other hooks have `summed`, by their class and name."""
        return {}

    def send(self, task: Task, context: ServerContext) -> Task:
        """Return an outgoing task, changed."""
        return task

    def receive(self, update: Update, context: ServerContext) -> Update:
        """Undo what the client's `send` did.

        Raises:
            Rejected: the client's side cannot have sent this update.
        """
        return update

    def most_samples(self, samples: int, context: ServerContext) -> int:
        """Return the largest number of samples that the client's side can make of `samples`; by
        default `samples`.

        An update that claims more is rejected, so a hook whose other side adds samples overrides
        this.
        """
        return samples

    def on_accepted(self, update: Update, context: ServerContext) -> None:
        """Process an accepted update; called in the order of the plan.

        In a lane of several clients, or if updates are masked, the update has no delta; a hook that
        needs it requires `Need.EACH_CLIENT`.
        """

    def on_sums(self, sums: Mapping[str, np.ndarray], context: ServerContext) -> None:
        """Take the sums of what `Hook.summed` names, float64 (d,), over all accepted updates.

        It is called before aggregation, and only if updates are masked (`context.masked`).
        """

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        """Return the state after aggregation, changed; `context.start` is the model before it."""
        return state

    def on_removed(self, clients: Collection[int], context: ServerContext) -> None:
        """Remove the contributions of these clients from the memory; they take part no more.

        It is called between two rounds, if a run excludes clients or a fork is without them;
        `context.round` is the next round. A memory that sums over clients needs it.
        """


class ClientSide(Generic[H]):
    """The client's end of a hook; by default every method returns its argument unchanged.

    A side lives for one task, or for one question. What it keeps longer, so that it can be saved
    and moved, is in its context's memory.

    Args:
        hook: the hook, with its settings.
    """

    def __init__(self, hook: H) -> None:
        self.hook = hook

    def answer(self, phase: Phase, question: Slot, context: ClientContext) -> Slot:
        """Return the answer to the server side's question.

        Of the client's memory only `context.round_memory` is available.
        """
        return {}

    def receive(self, task: Task, context: ClientContext) -> Task:
        """Undo what the server's `send` did."""
        return task

    def samples(self, data: Data, context: ClientContext) -> Data:
        """Return the samples to train on; called after `receive`.

        If they can be more than `data`, the other side overrides `most_samples`.
        """
        return data

    def term(self, context: ClientContext) -> GradientTerm | None:
        """Return what each local step adds to its gradient; None: nothing. Called after `receive`.

        A side that changes gradients in this way alone trains with many clients at once.
        """
        return None

    def gradient(self, gradient: np.ndarray, weights: np.ndarray, context: ClientContext) -> None:
        """Change the gradient of one local step in place, by default by the `term`.

        Both are float32 (d,). It is called before weight decay and momentum, and must not change
        the weights.
        """
        if context.term is not None:
            context.term.add(gradient, weights)

    def send(self, update: Update, context: ClientContext) -> Update:
        """Return an outgoing update, changed."""
        return update


class Hook(Part):
    """One idea: its settings, and the classes of its two sides.

    The settings are the attributes of a frozen dataclass.
    """

    Server: ClassVar[type[ServerSide]] = ServerSide
    """The server's side; a hook that does something there has a class of this name."""

    Client: ClassVar[type[ClientSide]] = ClientSide
    """The client's side, likewise."""

    def server(self) -> ServerSide:
        """Return a new server's side."""
        return self.Server(self)

    def client(self) -> ClientSide:
        """Return a new client's side."""
        return self.Client(self)

    def answered(self, question: str, classes: int, values: Slot, secret: Secret) -> Slot:
        """Return a client's answer to a question of the selector, as it leaves the client; by
        default unchanged.

        Args:
            question: the name of the question.
            classes: the number of labels that it is about.
            values: the true answer.
            secret: the client's.
        """
        return values

    def reported(self, question: str, values: Slot, samples: int) -> Slot:
        """Return the answer for the selector: the server undoes `answered` as far as it can.

        Args:
            question: the name of the question.
            values: what the client sent; it is not checked.
            samples: the client's number of samples.
        """
        return values

    @property
    def assets(self) -> Mapping[str, Asset]:
        """The assets that the client's side needs, by name (`ClientContext.assets`)."""
        return {}

    summed: ClassVar[tuple[str, ...]] = ()
    """The vectors (d,) in its updates' slots that its server's side only adds up.

    If updates are masked, they are in the sum, too, and `ServerSide.on_sums` gets them."""

    @property
    def share_sent(self) -> float:
        """Share of an update's values that travel; at the server all others are 0."""
        return 1.0

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from the methods of both sides, and from `share_sent`."""
        client, of = type(self.client()), type(self.server())
        leaves_out = of.leave_out is not ServerSide.leave_out
        changes_later = any(
            getattr(of, one) is not getattr(ServerSide, one) for one in ("conclude", "send")
        )
        receives = of.receive is not ServerSide.receive
        notes = of.on_accepted is not ServerSide.on_accepted or (receives and changes_later)
        corrects = any(
            getattr(client, one) is not getattr(ClientSide, one) for one in ("gradient", "term")
        )
        encodes = Trait.ENCODES_UPDATE in self.provides
        masked = of.reveal is not ServerSide.reveal
        sends = client.send is not ClientSide.send
        found = {
            Trait.MASKED: masked,
            Trait.ONE_SUM: masked and of.sums is ServerSide.sums,
            Trait.CHANGES_UPDATE: sends and self.stage is Stage.PLAIN,
            Trait.SENDS_GRADIENTS: encodes and corrects,
            Trait.SENDS_MORE: sends or client.answer is not ClientSide.answer,
            Trait.LOSSY: encodes,
            Trait.SPARSE: self.share_sent < 0.5,
            Trait.ASKS_COHORT: bool(of.asks) or leaves_out,
            Trait.USES_SINGLE: notes and not masked and not self.summed,
        }
        return frozenset(trait for trait, is_there in found.items() if is_there)

    @property
    def stage(self) -> Stage:
        """The place of the hook among the others; it follows from what the hook encodes."""
        if Trait.ENCODES_UPDATE in self.provides:
            return Stage.UPDATE
        return Stage.MODEL if Trait.ENCODES_MODEL in self.provides else Stage.PLAIN
