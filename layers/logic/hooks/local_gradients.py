"""Hooks on the gradients of local steps: clipping, FedProx, and replies with gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layers.logic.core.declaration import Need, Trait
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.hook import ClientContext, ClientSide, Hook, ServerContext, ServerSide
from layers.logic.core.messages import EMPTY, Update, vector_in
from layers.logic.core.parts import Parts
from layers.logic.core.trainer import LocalSgd
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import norm
from layers.settings import Bound, NotNegative


@dataclass(frozen=True)
class Clip(Hook):
    """Each gradient g that is longer than `norm` is scaled down to that length.

    Source: Pascanu et al. 2013, algorithm 1.

    Attributes:
        norm: the largest Euclidean norm of a gradient, over all trainable parameters.
    """

    name = "clip"

    norm: Bound = 1.0

    class Client(ClientSide["Clip"]):
        def gradient(
            self, gradient: np.ndarray, weights: np.ndarray, context: ClientContext
        ) -> None:
            length = norm(gradient)
            if length > self.hook.norm:
                gradient *= np.float32(self.hook.norm / length)


@dataclass(frozen=True)
class FedProx(Hook):
    """Each local step follows g + mu (w - w_t), the gradient of f_k(w) + mu/2 ||w - w_t||^2.

    Source: Li et al. 2020 (FedProx), equation 2. The term holds clients near the received model.

    The term is a part of the gradient, so momentum applies to it, too. The server does
    nothing, neither side keeps anything, and nothing more is sent.

    Attributes:
        mu: weight of the proximal term; with 0 the result is FedAvg's, bit for bit.
    """

    name = "fedprox"

    mu: NotNegative = 0.01

    def check(self, logic: Parts) -> None:
        """Check that no step goes beyond the received model, near which it holds the client.

        Raises:
            LogicError: learning rate times mu is 1 or more.
        """
        if logic.training.learning_rate * self.mu >= 1:
            raise LogicError(
                f"FedProx: learning_rate {logic.training.learning_rate} times mu {self.mu} is 1 or "
                "more: each step would overshoot the received model; lower one of them"
            )

    class Client(ClientSide["FedProx"]):
        def term(self, context: ClientContext) -> GradientTerm:
            return GradientTerm(context.start, pull=self.hook.mu)


GRADIENT = "gradient"


@dataclass(frozen=True)
class GradientReply(Hook):
    """The client sends the sum G of the gradients of all local steps; the server takes w - eta G.

    With plain SGD and the same learning rate at both ends this is the model that the client has.
    Every hook that works on gradients comes before it, so that it sums the corrected gradients.
    Hooks that change the update are refused: the update itself does not travel.
    """

    name = "gradient-reply"

    requires = frozenset({Need.SGD})
    provides = frozenset({Trait.ENCODES_UPDATE})

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods; nothing is lost."""
        return super().follows - {Trait.LOSSY}

    def check(self, logic: Parts) -> None:
        """Check that clients train by plain SGD."""
        training, trainer = logic.training, type(logic.trainer).__name__
        same = "returning the gradient equals returning the model for"
        for name in ("momentum", "weight_decay"):
            if value := getattr(training, name):
                raise LogicError(
                    f"{same} plain SGD only, and {name} is {value}; set it to 0, or return the "
                    "model"
                )
        if not isinstance(logic.trainer, LocalSgd):
            raise LogicError(f"{same} LocalSgd only, not for {trainer}; return the model")

    class Client(ClientSide):
        def __init__(self, hook: GradientReply) -> None:
            super().__init__(hook)
            self._sum: np.ndarray | None = None

        def gradient(
            self, gradient: np.ndarray, weights: np.ndarray, context: ClientContext
        ) -> None:
            if self._sum is None:
                self._sum = np.zeros_like(gradient)
            self._sum += gradient

        def send(self, update: Update, context: ClientContext) -> Update:
            total = np.zeros_like(update.delta) if self._sum is None else self._sum
            context.slot[GRADIENT] = total
            return replace(update, delta=EMPTY)

    class Server(ServerSide):
        def receive(self, update: Update, context: ServerContext) -> Update:
            gradient = vector_in(context.slot, GRADIENT, "gradient", np.float32, context.start.size)
            return replace(update, delta=np.float32(-context.training.learning_rate) * gradient)
