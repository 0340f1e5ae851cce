"""Distributed selective SGD (Shokri and Shmatikov 2015, figures 3 and 4).

A client keeps a model of its own. It takes the server's values for the parameters that all clients
together have updated most often. Then it trains, and uploads a share of its changes, each clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from layers.arithmetic import log
from layers.logic.compression.codecs import (
    SparseCodec,
    decode_sparse,
    encode_sparse,
    exactly,
    kept_of,
    top,
)
from layers.logic.compression.sides import PAYLOAD, receive_encoded, send_payload
from layers.logic.core.declaration import encoded
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Context,
    Hook,
    ServerContext,
    ServerSide,
)
from layers.logic.core.messages import EMPTY, Task, Update, vector_in
from layers.logic.errors import LogicError
from layers.settings import Bound, PositiveShare

NEWS = "most updated"
EVERYTHING = SparseCodec(1.0)
LARGEST = 1e300  # scale of noise, so that noise stays finite
ABOVE, VALUES = 8 / 9, 2 / 9  # of epsilon; sigma has a factor of 2, which halves the second share


@dataclass(frozen=True)
class SelectiveSgd(Hook):
    """Clients with models of their own share parts of them (Shokri and Shmatikov 2015).

    If a round has several clients, the aggregator takes the mean of their changes; the paper adds
    them up.

    With `epsilon` a client uploads with Laplace noise, by the sparse vector technique (section 5;
    `numeric_sparse`): of its changes, each clipped to [-gamma, gamma], it looks at one after
    the other in random order, and uploads at most c = theta_u d whose absolute value with noise is
    at least tau with noise. An uploaded change has noise, too, and is clipped again (the paper
    prints one clipping, after the noise). The sensitivity is 2 gamma. Each uploaded parameter
    costs epsilon / c, so that a client spends at most epsilon in a round, and more in every further
    round. This is the paper's account; fedmx claims no privacy beyond it. The client's own model
    has no noise, and what hooks and metrics send besides has none either.

    The noise shows what accuracy it costs. It does not protect from a party that has the
    experiment's seed and the update: it is drawn from that seed, which the server and each client
    have, so they can draw the same noise and subtract it. Epsilon holds only against those who do
    not have the seed.

    Attributes:
        download: theta_d, the share of the parameters that clients receive, the most often updated.
        upload: theta_u, the share of the changes that is sent.
        choice: ``largest`` uploads the largest changes, ``random`` any that are above `threshold`.
        threshold: tau, the least change for ``choice: random``.
        clip: gamma, to which a larger change is clipped; None clips nothing.
        epsilon: the budget of one client's upload, above 0, with ``choice: random`` and a clip;
            it holds only against those who do not have the experiment's seed; None: no noise.
    """

    name = "selective-sgd"

    download: PositiveShare = 1.0
    upload: PositiveShare = 0.1
    choice: Literal["largest", "random"] = "largest"
    threshold: Annotated[float, Ge(0)] = 0.0001
    clip: Bound | None = 0.001
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            self._check_noise(self.epsilon)

    def _check_noise(self, epsilon: float) -> None:
        """Check the settings that noise needs.

        Raises:
            LogicError: epsilon is no budget, or the changes have no bound or are not drawn.
        """
        if not 0 < epsilon < math.inf:
            raise LogicError(f"epsilon must be greater than 0 and finite, not {epsilon}")
        if self.choice != "random":
            raise LogicError(
                "epsilon draws among the changes above the threshold; set choice: random"
            )
        if self.clip is None or self.clip == math.inf:
            raise LogicError("epsilon needs changes with a bound; set clip")

    provides = encoded(True, True)

    @property
    def share_sent(self) -> float:
        return self.upload

    class Server(ServerSide["SelectiveSgd"]):
        def send(self, task: Task, context: ServerContext) -> Task:
            if self.hook.epsilon is not None and task.pass_number > 1:
                raise LogicError(
                    "selective-sgd with epsilon: the selector sends clients several times through "
                    "a round, and each time would spend epsilon; let a round have one pass, as "
                    "with mediator_epochs: 1, or leave epsilon out"
                )
            size = task.weights.size
            wanted = kept_of(size, self.hook.download) if size else 0
            if task.last_accepted_round < _since(context) or wanted == size:
                return task  # the client keeps no model yet, or takes the server's whole model
            updated = context.memory.get("updated", np.zeros(size, np.int32))
            positions = most_updated(updated, wanted)
            context.slot[NEWS] = encode_sparse(positions, task.weights[positions], size)
            return replace(task, weights=EMPTY)

        def receive(self, update: Update, context: ServerContext) -> Update:
            return receive_encoded(update, context, EVERYTHING, _whole(context))

        def on_accepted(self, update: Update, context: ServerContext) -> None:
            size = int(_whole(context)[-1])
            payload = vector_in(context.slot, PAYLOAD, "payload", np.uint8)
            positions, _ = decode_sparse(payload, size)
            updated = context.memory.get("updated", np.zeros(size, np.int32)).copy()
            updated[positions] += 1
            context.keep(updated=updated, since=_since(context))

    class Client(ClientSide["SelectiveSgd"]):
        def receive(self, task: Task, context: ClientContext) -> Task:
            if NEWS not in context.slot:
                return task
            if "model" not in context.memory:
                raise LogicError(
                    f"round {context.round}: the server sent a part of its model, but this client "
                    "keeps no model"
                )
            model = context.memory["model"].copy()
            payload = vector_in(context.slot, NEWS, "payload", np.uint8)
            positions, values = decode_sparse(payload, model.size)
            model[positions] = values
            return replace(task, weights=model)

        def send(self, update: Update, context: ClientContext) -> Update:
            delta = update.delta
            if not np.isfinite(delta).all():
                return update  # unchanged: the server rejects it and says why
            context.keep(model=context.start + delta)
            if self.hook.epsilon is not None and delta.size:
                positions, values = self._noisy(delta, self.hook.epsilon, context)
            else:
                positions = self._chosen(delta, context) if delta.size else np.zeros(0, np.int64)
                values = delta[positions]
                if self.hook.clip is not None:
                    np.clip(values, -self.hook.clip, self.hook.clip, out=values)
            return send_payload(update, context, encode_sparse(positions, values, delta.size))

        def _noisy(
            self, delta: np.ndarray, epsilon: float, context: ClientContext
        ) -> tuple[np.ndarray, np.ndarray]:
            """Return the positions that are uploaded, and the values with noise, float32 (c,)."""
            hook = self.hook
            gamma = float(hook.clip or 0.0)
            bounded = np.clip(delta.astype(np.float64), -gamma, gamma)
            count = kept_of(delta.size, hook.upload)
            positions, values = numeric_sparse(
                bounded, hook.threshold, count, 2 * gamma, epsilon, context.rng
            )
            return positions, np.clip(values, -gamma, gamma).astype(np.float32)

        def _chosen(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
            k = kept_of(delta.size, self.hook.upload)
            if self.hook.choice == "largest":
                return exactly(delta, top(delta, k)[0], k)
            large = np.flatnonzero(np.abs(delta) > self.hook.threshold)
            if large.size <= k:
                return large
            return np.sort(context.rng("choose").choice(large, k, replace=False))


def _since(context: Context) -> int:
    """Return the first round from which on clients keep a model of their own.

    In a fork it may be a later one than the first: this hook was not there before.
    """
    before = 1 if "updated" in context.memory else context.round
    return int(context.memory.get("since", before))


def most_updated(updated: np.ndarray, k: int) -> np.ndarray:
    """Return the k positions with the highest counts, ascending int64.

    Of positions with equal counts the first ones are taken.
    """
    least = np.partition(updated, updated.size - k)[updated.size - k]
    more = np.flatnonzero(updated > least)
    equal = np.flatnonzero(updated == least)[: k - more.size]
    return np.sort(np.concatenate((more, equal)))


def _whole(context: Context) -> np.ndarray:
    return np.array([0, context.layout[-1].stop if len(context.layout) else 0], np.int64)


# --- the sparse vector technique -------------------------------------------------------------


def numeric_sparse(
    values: np.ndarray,
    threshold: float,
    count: int,
    sensitivity: float,
    epsilon: float,
    rng: Callable[[str], np.random.Generator],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of at most `count` values above the threshold, and the noisy values.

    NumericSparse (Dwork and Roth 2014, algorithm 3, delta = 0) on absolute values, as Shokri and
    Shmatikov use it (2015, section 5). With sigma(x) = 2 count sensitivity / x,
    epsilon_1 = 8/9 epsilon and epsilon_2 = 2/9 epsilon:

        rho = Lap(sigma(epsilon_1)), drawn again after each hit
        v is a hit if abs(v) + Lap(2 sigma(epsilon_1)) >= threshold + rho
        the result is v + Lap(sigma(epsilon_2))

    Each value is tested once, in random order, until there are `count` hits.

    Args:
        values: float64 (d,), each within bounds that are `sensitivity` apart.
        threshold: tau.
        count: c, at least 1.
        sensitivity: the largest change of a value by one sample.
        epsilon: the budget of the whole call, above 0.
        rng: returns the generator for a purpose.

    Returns:
        Positions, ascending int64, and values, float64, with noise.
    """
    order = rng("order").permutation(values.size)
    above = _sigma(ABOVE * epsilon, count, sensitivity)
    queries = np.abs(values[order]) + laplace(rng("query"), 2 * above, values.size) - threshold
    thresholds = laplace(rng("threshold"), above, count).tolist()
    found: list[int] = []
    for place, query in enumerate(queries.tolist()):
        if query >= thresholds[len(found)]:
            found.append(place)
            if len(found) == count:
                break
    noise = laplace(rng("value"), _sigma(VALUES * epsilon, count, sensitivity), count)
    positions = order[found]
    noisy = values[positions] + noise[: len(found)]
    ascending = np.argsort(positions)
    return positions[ascending], noisy[ascending]


def laplace(rng: np.random.Generator, scale: float, size: int) -> np.ndarray:
    """Return draws of the Laplace distribution with mean 0, float64; the same bits everywhere."""
    uniform = 1 - rng.random((2, size))  # above 0
    return np.asarray(scale * (log(uniform[0]) - log(uniform[1])))


def _sigma(epsilon: float, count: int, sensitivity: float) -> float:
    scale = 2 * count * sensitivity
    return scale / epsilon if scale < LARGEST * epsilon else LARGEST
