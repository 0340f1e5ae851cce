"""The logic of an experiment: who takes part, and how updates become a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from layers.logic.aggregator import Aggregator
from layers.logic.aggregators.mean import Mean
from layers.logic.chain import ClientChain, ServerChain, keyed
from layers.logic.errors import LogicError
from layers.logic.exchange import Layout, Task, Training
from layers.logic.hook import Hook
from layers.logic.selector import Selector
from layers.logic.selectors.uniform import Uniform
from layers.logic.state import ClientState, ServerState


@dataclass(frozen=True)
class Logic:
    """What `Server(logic=...)` and `Client(logic=...)` take; the same value at both ends.

    Attributes:
        layout: where each tensor lies in the flat vector.
        selector: who takes part.
        aggregator: how contributions become the next state.
        hooks: what happens to tasks and updates on their way, in the server's order of sending.
        training: how clients train.
        rate: the learning rate by round (from 1); None keeps `training.rate`.
        seed: of every random draw.
        min_updates: a round with fewer counted updates raises `TooFewUpdates`; with 0, a round
            without any keeps the model and goes on.
    """

    layout: Layout
    selector: Selector = field(default_factory=Uniform)
    aggregator: Aggregator = field(default_factory=Mean)
    hooks: Sequence[Hook] = ()
    training: Training = field(default_factory=Training)
    rate: Callable[[int], float] | None = None
    seed: int = 0
    min_updates: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.hooks, Hook):
            raise LogicError(f"hooks must be a list, [{self.hooks!r}], not a single hook")
        for kind, value, like in (
            ("selector", self.selector, Selector),
            ("aggregator", self.aggregator, Aggregator),
            *(("hook", hook, Hook) for hook in self.hooks),
        ):
            if not isinstance(value, like):
                raise LogicError(
                    f"{value!r} is no {kind}; it must be an instance of a class derived from "
                    f"layers.logic.{like.__name__}"
                )
        if self.min_updates < 0:
            raise LogicError(f"min_updates must be 0 or more, not {self.min_updates}")
        self.aggregator.check(self)
        for hook in self.hooks:
            hook.check(self)

    @property
    def size(self) -> int:
        """Number of trainable parameters, d."""
        return self.layout[-1].stop if len(self.layout) else 0

    def training_of(self, round: int) -> Training:
        """Return how clients train in `round` (from 1)."""
        training = self.training
        if self.rate is not None:
            training = replace(training, rate=float(self.rate(round)))
        if self.aggregator.received_loss or any(hook.received_loss for hook in self.hooks):
            training = replace(training, loss="received")
        return training

    @property
    def received_gradient(self) -> bool:
        """Whether a hook needs the received model's gradient."""
        return any(hook.received_gradient for hook in self.hooks)

    def server_chain(self, state: ServerState, clients: int) -> ServerChain:
        """Return fresh server halves for the round after `state`, of a population of `clients`."""
        halves = {key: hook.server() for key, hook in keyed(self.hooks).items()}
        training = self.training_of(state.round + 1)
        return ServerChain(halves, state, training, self.layout, self.seed, clients)

    def client_chain(self, task: Task, state: ClientState) -> ClientChain:
        """Return fresh client halves for `task`."""
        halves = {key: hook.client() for key, hook in keyed(self.hooks).items()}
        return ClientChain(halves, state.memory, task, self.layout)
