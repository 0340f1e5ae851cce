"""SCAFFOLD (Karimireddy et al. 2020, algorithm 1): control variates against client drift."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need, Trait, declarers
from layers.logic.core.gradient_term import GradientTerm
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Context,
    Hook,
    ServerContext,
    ServerSide,
)
from layers.logic.core.messages import Task, Update, vector_in
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError, Rejected
from layers.logic.numeric.vectors import accumulation, excess
from layers.logic.selectors.uniform import Uniform
from layers.settings import Positive

VARIATE = "variate"  # c, on its way down

CHANGE = "change"  # c_i+ - c_i, on its way up

SUM = "sum"  # of all c_i, on the server: N c

OWN = "own"  # c_i, on the client

SINCE = "since"  # the round at whose end all variates were reset to zero; missing: never

SENDERS = "senders"  # int64, ascending: the clients whose c_i are in the sum


@dataclass(frozen=True)
class Scaffold(Hook):
    """Each local step follows g - c_i + c; c_i estimates the client's gradient, c the mean of all.

    After training (equation 4): option I takes c_i+ = the client's gradient at the received model
    w, at the cost of one more pass over its samples; option II takes
    c_i+ = c_i - c + (w - y) / (eta a), where y is the trained model. a is the number of local steps
    K_i. With momentum rho it is ||a_i||_1; with K_i the variate c_i would be too large by nearly
    1 / (1 - rho). The server sets c += (1/N) sum_i (c_i+ - c_i), where N is the number of all
    clients, and moves the model by `server_learning_rate` times what aggregation would add to it.
    All variates start at zero.

    The paper has no momentum. With momentum rho there are two ways; without it they are the same,
    bit for bit:

    - ``correct="gradient"`` adds c - c_i to the gradient, so that momentum accumulates it:
      v = rho v + g + c - c_i, y -= eta v. c_i estimates a gradient.
    - ``correct="step"`` adds c - c_i outside of the momentum: v = rho v + g,
      y -= eta (v + c - c_i). In option II a is K_i here, so that c_i estimates the mean v, which is
      nearly g / (1 - rho). NIID-Bench (Li et al. 2022) and Flower's niid_bench do this.

    The client keeps c_i, the server N c. In float32 c travels down and c_i+ - c_i up, so that each
    way has twice the bytes of FedAvg.

    A client that has lost its memory begins again with c_i = 0, while its old c_i would stay in the
    server's sum forever, and the model would converge to a wrong point. So when the server has
    asked such a client, all variates are reset to zero at the end of the round, and the round's
    record has the number of these clients, `lost_variates`. They are also reset when a client whose
    c_i is in the sum takes part no more.

    Attributes:
        option: how c_i+ is found.
        server_learning_rate: eta_g, the server's learning rate.
        dense: whether the variates may travel uncompressed beside an update that a codec makes
            smaller; if not, the two are refused together.
        correct: where c - c_i is added; with ``"step"`` option I, whose c_i is a gradient, corrects
            less than momentum moves.
    """

    name = "scaffold"

    option: Literal["I", "II"] = "II"
    server_learning_rate: Positive = 1.0
    dense: bool = False
    correct: Literal["gradient", "step"] = "gradient"

    provides = frozenset({Trait.SUMS})
    summed = (CHANGE,)
    counts_clients = True
    memory_fits = True

    @property
    def requires(self) -> frozenset[Need]:
        """One model, steps of SGD, and the model's gradient in option I."""
        gradient = {Need.RECEIVED_GRADIENT} if self.option == "I" else set()
        return frozenset({Need.ONE_VERSION, Need.SGD, *gradient})

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods; `send` only reads the update."""
        return super().follows - {Trait.CHANGES_UPDATE}

    def check(self, logic: Parts) -> None:
        """Check that updates arrive without loss, unless `dense` is set."""
        me = type(self).__name__
        lossy = (declarers(hook).get(Trait.LOSSY) for hook in logic.hooks)
        if not self.dense and (other := next(filter(None, lossy), None)):
            raise LogicError(
                f"{type(other).__name__} compresses the update, but not the values of {me}: "
                "they travel as float32, and follow the client's own update, not the decoded one; "
                f"set dense: true in {me} to allow it"
            )

    class Server(ServerSide["Scaffold"]):
        def __init__(self, hook: Scaffold) -> None:
            super().__init__(hook)
            self._changes: np.ndarray | None = None
            self._accepted = False
            self._senders: set[int] = set()
            self._zero: set[int] = set()  # clients without memory: they begin with c_i = 0
            self._lost: set[int] = set()

        def send(self, task: Task, context: ServerContext) -> Task:
            if not task.last_accepted_round:
                # In a later pass it has sent a variate already: the one of the pass before.
                (self._zero if task.pass_number == 1 else self._lost).add(task.client)
            since = _since(context.memory)
            if since:
                context.slot[SINCE] = since
            total = context.memory.get(SUM)
            if total is not None:
                context.slot[VARIATE] = total / np.float32(_clients(context))
            return task

        def receive(self, update: Update, context: ServerContext) -> Update:
            if _since(context.slot) != _since(context.memory) and context.masked:
                raise Rejected("a control variate of another beginning in a sum")
            if context.masked:
                return update
            change, most = _variate(CHANGE, context), context.max_update
            if most is not None:  # of an update, which is eta of what a variate is: a gradient
                most /= context.training.learning_rate
            above = excess(change, context.start, most)
            if above is not None:
                raise Rejected(
                    f"a control variate that moved by {above.norm:.3g}; it may by {above.bound:.3g}"
                )
            return update

        def on_accepted(self, update: Update, context: ServerContext) -> None:
            self._accepted = True
            if _since(context.slot) != _since(context.memory):
                return  # the client says that its variate is of another beginning
            self._senders.add(update.client)
            if context.masked:
                return  # `on_sums` gets the changes of all
            # Applied when the round ends: the sent values must not depend on the answers so far.
            if self._changes is None:
                self._changes = np.zeros(context.start.size)
            self._changes += _variate(CHANGE, context)

        def on_sums(self, sums: Mapping[str, np.ndarray], context: ServerContext) -> None:
            self._changes = sums[CHANGE]

        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            senders = _senders(context)
            lost = self._lost.union(np.intersect1d(list(self._zero), senders).tolist())
            if lost:
                _begin_anew(context, context.round)
                context.record(lost_variates=len(lost))
            elif self._changes is not None:
                # The sum, not c: it stays right when clients join later.
                total = self._changes + context.memory.get(SUM, 0.0)
                senders = np.union1d(senders, np.array(sorted(self._senders), np.int64))
                clients = _clients(context)
                context.keep(
                    **{SUM: total.astype(np.float32), SENDERS: senders, "clients": clients}
                )
            rate = np.float32(self.hook.server_learning_rate)
            if rate == 1 or not self._accepted:
                return state
            change = rate * (state.weights - context.start)
            return replace(state, weights=context.start + change, change=change)

        def on_removed(self, clients: Collection[int], context: ServerContext) -> None:
            if np.isin(_senders(context), list(clients)).any():
                _begin_anew(context, context.round - 1)
                context.keep(clients=0)  # the next round says how many there are now

    class Client(ClientSide["Scaffold"]):
        def __init__(self, hook: Scaffold) -> None:
            super().__init__(hook)
            self._since = 0
            self._own: np.ndarray | None = None  # None: zero
            self._variate: np.ndarray | None = None
            self._correction: np.ndarray | None = None

        def receive(self, task: Task, context: ClientContext) -> Task:
            self._since = _since(context.slot)
            if self._since == _since(context.memory):
                self._own = context.memory.get(OWN)
            own = np.float32(0) if self._own is None else self._own
            if VARIATE in context.slot:  # missing until the first round has ended: c is zero
                self._variate = _variate(VARIATE, context)
                self._correction = self._variate - own
            elif self._own is not None:
                self._correction = -self._own
            return task

        def term(self, context: ClientContext) -> GradientTerm:
            # The velocity holds the correction; later steps add what momentum takes off.
            later = 1 - context.training.momentum if self.hook.correct == "step" else 1.0
            return GradientTerm(context.start, self._correction, later)

        def send(self, update: Update, context: ClientContext) -> Update:
            own = np.zeros_like(update.delta) if self._own is None else self._own
            change = self._change(own, update, context)
            context.slot[CHANGE] = change
            if self._since:
                context.slot[SINCE] = self._since
            if self._since != _since(context.memory):
                context.keep(**{SINCE: self._since})
            # The server adds up the same values that are kept here, rounding included.
            context.keep(**{OWN: own + change})
            return update

        def _change(self, own: np.ndarray, update: Update, context: ClientContext) -> np.ndarray:
            """Return c_i+ - c_i, float32 (d,)."""
            change: np.ndarray
            if self.hook.option == "I":
                change = context.gradient - own
                return change
            training = context.training
            momentum = 0.0 if self.hook.correct == "step" else training.momentum
            weight = accumulation(update.steps, training.learning_rate, momentum)
            if not weight:  # no local step: nothing is known about the gradient
                return np.zeros_like(own)
            change = update.delta / np.float32(-training.learning_rate * weight)
            if self._variate is not None:
                change -= self._variate
            return change


def _begin_anew(context: ServerContext, since: int) -> None:
    """Set all variates to zero: the sum holds an unknown part of a client that is gone."""
    nothing = np.zeros(context.start.size, np.float32)
    empty = np.zeros(0, np.int64)
    context.keep(**{SUM: nothing, SINCE: since, SENDERS: empty}, clients=_clients(context))


def _senders(context: ServerContext) -> np.ndarray:
    """Return the clients whose variates are in the sum, int64, ascending."""
    return np.asarray(context.memory.get(SENDERS, np.zeros(0, np.int64)))


def _since(memory: Mapping[str, Any]) -> int:
    """Return the round at whose end the variates of a memory or a slot began with zero.

    Raises:
        Rejected: it is no round.
    """
    since = memory.get(SINCE, 0)
    if not isinstance(since, int) or since < 0:
        raise Rejected("a control variate whose `since` is not the number of a round")
    return since


def _variate(name: str, context: Context) -> np.ndarray:
    """Return a control variate, or its change, from the other end."""
    size = context.layout[-1].stop
    return vector_in(context.slot, name, "control variate", np.float32, size)


def _clients(context: ServerContext) -> int:
    """Return N: the largest number of clients so far, because some may be away for a while."""
    return max(context.clients, int(context.memory.get("clients", 0)))


@settings_of_parts()
def scaffold() -> Preset:
    """SCAFFOLD (Karimireddy et al. 2020): control variates at both ends against client drift.

    As in the paper, all clients have the same weight in the mean.
    """
    return Preset(Uniform(), Mean("uniform"), (Scaffold(),))
