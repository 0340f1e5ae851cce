"""An attack: clients that lie, in a simulation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from layers.logic.core.declaration import Trait
from layers.logic.core.engine import Data
from layers.logic.core.hook import ClientContext, ClientSide, Hook
from layers.logic.core.messages import Update
from layers.logic.errors import LogicError
from layers.logic.seeds import generator
from layers.settings import Share, WholeNumber

_Attack = TypeVar("_Attack", bound="Attack")


@dataclass(frozen=True)
class Attack(Hook):
    """The lie of some clients: other samples, or another update in place of what they trained.

    An attack is a hook without a server's side, after all other hooks that change updates, and
    before those that encode them. It is for simulations only.

    Attributes:
        clients: the clients that lie: a share of all clients, drawn by the experiment's seed, or a
            list of their numbers.
    """

    clients: Share | tuple[WholeNumber, ...] = 0.2

    def among(self: _Attack, number: int, seed: int) -> _Attack:
        """Return the attack with the numbers of the clients that lie.

        Args:
            number: N, the number of clients.
            seed: of the experiment; a smaller share has some of the liars of a larger one.

        Raises:
            LogicError: it lists a client that does not exist.
        """
        given = self.clients
        if not isinstance(given, float | int):
            if max(given, default=0) >= number:
                raise LogicError(f"clients must be from 0 to {number - 1}, not {max(given)}")
            return replace(self, clients=tuple(sorted(set(given))))
        order = generator(seed, "liars").permutation(number)
        return replace(self, clients=tuple(sorted(order[: round(given * number)].tolist())))

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods, as if a liar sent what the others do."""
        return super().follows - {Trait.SENDS_MORE}

    @property
    def malicious(self) -> frozenset[int]:
        """The clients that lie, once `among` has drawn them."""
        return frozenset(() if isinstance(self.clients, float | int) else self.clients)

    def measured(self, x: np.ndarray, y: np.ndarray) -> Mapping[str, Data]:
        """Return the samples on which the accuracy is a quantity of each evaluated round, by its
        key; by default none.

        Args:
            x: the test samples, float32 (n, ...).
            y: their labels, int64 (n,).

        Raises:
            LogicError: the attack cannot work on such samples.
        """
        return {}

    def lie_in_samples(self, data: Data, context: ClientContext) -> Data:
        """Return the samples that a liar trains on; by default its own."""
        return data

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the update (d,) that a liar sends in place of `delta`; by default the same."""
        return delta

    class Client(ClientSide["Attack"]):
        def samples(self, data: Data, context: ClientContext) -> Data:
            lies = context.client in self.hook.malicious
            return self.hook.lie_in_samples(data, context) if lies else data

        def send(self, update: Update, context: ClientContext) -> Update:
            if context.client not in self.hook.malicious:
                return update
            delta = self.hook.lie_in_update(update.delta, context)
            return update if delta is update.delta else replace(update, delta=delta)


class Collusion(Attack, ABC):
    """An attack of liars that know the honest updates of their round, and all send the same."""

    @abstractmethod
    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        """Return the update that every liar of a round sends, float64 (d,).

        Args:
            honest: float64 (h, d), the honest updates of the round in the order of the plan.
            malicious: f, the number of malicious clients in the round.
            rng: draws, the same for all liars of the round.
        """


def attack_in(hooks: Sequence[Hook]) -> Attack | None:
    """Return the attack among some hooks, if there is one."""
    return next((one for one in hooks if isinstance(one, Attack)), None)
