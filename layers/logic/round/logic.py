"""The logic of an experiment: which clients take part, and how updates become a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.checks.parts import check_kind, check_part
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.asset import Asset, declared_assets
from layers.logic.core.declaration import (
    Condition,
    Need,
    Part,
    Trait,
    check_together,
    held_out_by,
    with_inner,
)
from layers.logic.core.hook import Facilities, Hook
from layers.logic.core.local_tensors import Initial, LocalTensors
from layers.logic.core.messages import Layout, Training
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import LocalSgd, Trainer
from layers.logic.errors import LogicError
from layers.logic.round.evaluation import ClientEvaluation
from layers.logic.round.hook_order import check_order, in_order
from layers.logic.secrets import Secret
from layers.logic.selectors.uniform import Uniform


@dataclass(frozen=True)
class Logic:
    """The logic of an experiment; `Server` and `Client` get equal ones.

    Attributes:
        layout: where each tensor lies in the flat vector.
        selector: chooses the clients of a round.
        aggregator: turns contributions into the next state.
        hooks: change tasks and updates, in the server's order of sending; they are sorted by their
            stage, and hooks of one stage keep their order.
        training: how clients train.
        learning_rate: the learning rate by round (from 1); None keeps `training.learning_rate`.
        seed: seed of every random draw.
        clients: N, the number of clients that take part, available or not; None: the number of
            clients in each round's population.
        without: clients that take no part; each is replaced by another client;
            only with a selector that provides `Trait.BY_NUMBER`.
        min_updates: a round with fewer accepted updates raises `TooFewUpdates`; with 0, a round
            without updates keeps the model and succeeds.
        deadline_s: seconds that a round may take, by the clock of the clients; None: no limit. An
            update that has not arrived by then is lost.
        over_select: factor by which more clients are asked than needed; the first ones are
            accepted. It has no effect on a selector whose plan is for certain clients.
        max_update: the largest norm of an update, and of a round's step, as a multiple of the norm
            of the model plus 1; a larger update is rejected. For buffers it is the square of this
            multiple. None: no bound.
        trainer: how a client makes its update from the received model.
        local_tensors: which tensors stay on each client; None: none.
        initial: the model that the run starts from, for clients' own tensors and models; None:
            clients do not know it.
        facilities: how the server trains on samples of its own.
        evaluation: which clients evaluate the new models; None: none does.

    Raises:
        LogicError: a setting is wrong, or the parts do not fit together.
    """

    layout: Layout
    selector: Selector = field(default_factory=Uniform)
    aggregator: Aggregator = field(default_factory=Mean)
    hooks: Sequence[Hook] = ()
    training: Training = field(default_factory=Training)
    learning_rate: Callable[[int], float] | None = None
    seed: int = 0
    clients: int | None = None
    without: tuple[int, ...] = ()
    min_updates: int = 1
    deadline_s: float | None = None
    over_select: float = 1.0
    max_update: float | None = 1000.0
    trainer: Trainer = field(default_factory=LocalSgd)
    local_tensors: LocalTensors | None = None
    initial: Initial | None = field(default=None, compare=False)
    facilities: Facilities = field(default_factory=Facilities, compare=False)
    evaluation: ClientEvaluation | None = None

    def __post_init__(self) -> None:
        if isinstance(self.hooks, Hook):
            raise LogicError(f"hooks must be a list, [{self.hooks!r}], not a single hook")
        for kind, value, like in (
            ("selector", self.selector, Selector),
            ("aggregator", self.aggregator, Aggregator),
            ("trainer", self.trainer, Trainer),
            *(("hook", hook, Hook) for hook in self.hooks),
        ):
            check_kind(kind, value, like)
            check_part(value)
        declared_assets(self.hooks)
        if self.min_updates < 0:
            raise LogicError(f"min_updates must be 0 or more, not {self.min_updates}")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise LogicError(f"deadline_s must be above 0, not {self.deadline_s}")
        if not 1 <= self.over_select < np.inf:
            raise LogicError(f"over_select must be 1 or more and finite, not {self.over_select}")
        if self.max_update is not None and not 0 < self.max_update < np.inf:
            raise LogicError(
                f"max_update must be above 0 and finite, or null, not {self.max_update}"
            )
        object.__setattr__(self, "hooks", in_order(self.hooks))
        check_together(self, self._conditions())
        check_order(self.hooks)
        self._check_numbers()
        for part in self._parts:
            for one in with_inner(part):
                one.check(self)

    def _conditions(self) -> dict[Condition, str]:
        """Return the conditions that hold, each with its value as messages show it."""
        values: dict[Condition, tuple[bool, object]] = {
            Condition.LOCAL: (self.local_tensors is not None, "local tensors"),
            Condition.WITHOUT: (bool(self.without), self.without),
            Condition.DEADLINE: (self.deadline_s is not None, self.deadline_s),
            Condition.RESERVE: (self.over_select != 1, f"{self.over_select:g}"),
        }
        return {one: str(value) for one, (holds, value) in values.items() if holds}

    def _check_numbers(self) -> None:
        """Check the numbers of clients and updates that selector and aggregator work with.

        Raises:
            LogicError: there are more clients, or a round may have fewer updates.
        """
        most, name = self.selector.most_clients, type(self.selector).__name__
        if most is not None and self.clients is not None and self.clients > most:
            raise LogicError(
                f"{name} works with at most {most:,} clients, and there are {self.clients:,}: "
                f"{self.selector.why_limited}; use fewer clients, or a selector that needs the "
                "cohort alone, such as uniform or by-size"
            )
        fewest = self.selector.fewest_clients
        if self.clients is not None and self.clients < fewest:
            raise LogicError(
                f"{name} takes {fewest:,} clients in a round, and there are {self.clients:,}; "
                "lower its count"
            )
        least = self.aggregator.least_updates
        if self.min_updates < least:
            raise LogicError(
                f"{self.aggregator} needs {least} updates in a round, and min_updates lets a round "
                f"count with {self.min_updates}; set logic.min_updates to {least} or more"
            )

    @property
    def size(self) -> int:
        """Number of trainable parameters, d."""
        return self.layout[-1].stop if len(self.layout) else 0

    def training_of(self, round: int) -> Training:
        """Return how clients train in `round` (from 1)."""
        training = self.training
        if self.learning_rate is not None:
            training = replace(training, learning_rate=float(self.learning_rate(round)))
        if self.needs(Need.RECEIVED_LOSS):
            training = replace(training, loss="received")
        return training

    @property
    def assets(self) -> Mapping[str, Asset]:
        """The assets that hooks declare and every client is given, by name."""
        return declared_assets(self.hooks)

    @property
    def held_out(self) -> float:
        """Share of the training samples that are taken out, for the server alone to train on."""
        return held_out_by((self.aggregator, *self.hooks))

    def needs(self, need: Need) -> bool:
        """Return whether any part requires this."""
        return any(need in one.requires for part in self._parts for one in with_inner(part))

    @property
    def asynchronous(self) -> bool:
        """Whether tasks may outlive their round."""
        return Trait.ASYNCHRONOUS in self.selector.provides

    @property
    def _parts(self) -> tuple[Part, ...]:
        return (self.selector, self.aggregator, *self.hooks, self.trainer)

    @property
    def secret(self) -> Secret:
        """The secret of the server; in a simulation it follows the seed."""
        given = self.facilities.secret
        return Secret.of_seed(self.seed, "server") if given is None else given

    def most_slot_bytes(self, values: int, clients: int) -> int:
        """Return the most bytes of the slots in one update or answer.

        They are 4 float32 values for each value of the model, 1 KiB for each client, one float64
        value for each output on each sample of the assets, and 1 MiB. No layer has fewer outputs
        than its largest first dimension.

        Args:
            values: number of weights and buffers of the model.
            clients: number of clients, N.
        """
        outputs = max((tensor.shape[0] for tensor in self.layout if tensor.shape), default=1)
        samples = sum(self.facilities.asset_sizes.values())
        return 16 * values + 1024 * clients + 8 * outputs * samples + (1 << 20)
