"""FedAIM: extremely biased clients train at mediators, and two servers exchange their models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from layers.arithmetic import log, sum_in_order
from layers.logic.aggregators.mean import BufferMean, WeightedSum, add_scaled, moved
from layers.logic.algorithms.mediators import (
    LABELS,
    Lines,
    ReportedLabels,
    at_random,
    balanced,
    even,
    greedy_fill,
    kept_lines,
    lines_of,
    present,
)
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import Slot, Update
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import SELECT, Selector
from layers.logic.core.state import Memory, ServerState
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError, Rejected
from layers.logic.numeric.distances import DISTANCES, farthest, shares, uniform, usual_threshold
from layers.logic.numeric.vectors import BLOCK, norm
from layers.logic.seeds import derive
from layers.settings import Count, NotNegative, Positive, Share

LEAST_BIAS = 1e-8  # so that a client without bias has a finite weight

NEBS = "nebs"
"""The group of the lanes of clients that are not extremely biased, and the server's name."""

EBS = "ebs"
"""The group of the mediators' lanes, and the server's name."""

ALONE = " alone"
"""The end of a group's name in a round without available clients of the other server."""


@dataclass(frozen=True)
class FedAimSplit(Selector):
    """All clients in every round: a lane for each mediator, and one for each client without a
    mediator.

    FedAIM, equation 3 and algorithm 1: client k is extremely biased if EMD_k, the distance of its
    labels' distribution from the reference, is at least theta. There are M mediators, or one for
    each of these clients if they are fewer, with equal numbers of clients where possible. As in
    Astraea, each takes the clients that bring its pooled distribution nearest to the reference.
    The lanes are in the groups `nebs` and `ebs`; when no client of the other group is available, in
    `nebs alone` or `ebs alone`.

    At most 10,000 clients.

    It asks the clients for their labels once, before their first round, and makes the split again
    when a client joins later. A client without a valid answer takes no part until it has answered.
    It keeps a `Split`: 8 bytes for each number and each distance of a client.

    Attributes:
        mediators: M, the number of lanes of extremely biased clients.
        classes: number of labels, C.
        threshold: theta; None: 3 for 10 classes and in proportion for others, 1.3 with l1.
        distance: ``"emd"``, the earth mover's with the labels as points 0 ... C - 1,
            sum_i |F(i) - (i + 1) / C|: at most (C - 1) / 2; ``"l1"``, sum_i |p(i) - 1 / C|: at most
            2 (1 - 1 / C), however the labels are numbered.
        reference: ``"uniform"`` over the classes, or ``"pooled"``: the labels of all
            clients together.
        schedule: how mediators are filled: ``"greedy"``, one after the other; ``"balanced"``, the
            most biased clients first, each where it fits best; or ``"random"``.
        shuffle: whether the clients of a mediator change places each round.
        reveal: what a client reports: ``"histogram"``, the number of samples of each label; or
            ``"distance"``, only its distance, so that mediators are filled at random.
    """

    name = "fedaim"

    mediators: Count = 3
    classes: Annotated[int, Ge(2)] = 10
    threshold: Positive | None = None
    distance: Literal["emd", "l1"] = "emd"
    reference: Literal["uniform", "pooled"] = "uniform"
    schedule: Literal["greedy", "balanced", "random"] = "greedy"
    shuffle: bool = False
    reveal: Literal["histogram", "distance"] = "histogram"

    requires = frozenset({Need.TOLD})

    @property
    def provides(self) -> frozenset[Trait]:
        return frozenset({Trait.ONLY_LABELS} if self.reveal == "histogram" else ())

    most_clients = 10_000
    why_limited = "every client takes part in every round, and mediators are filled from all"

    def __post_init__(self) -> None:
        if self.reveal == "distance" and self.reference == "pooled":
            raise LogicError(
                "reference: pooled needs every client's histogram, and reveal: distance does not "
                "ask for it; set reference to uniform or reveal to histogram"
            )
        most = farthest(self.distance, self.classes, self.reference)
        if self._theta > most + 1e-9:
            raise LogicError(
                f"threshold: no client is {self._theta:g} away from {self.reference} labels: by "
                f"{self.distance} and {self.classes} classes the distance is at most {most:g}; "
                "lower the threshold"
            )

    def check_data(self, classes: int, partition: object) -> None:
        """Check also that a partition measures extreme bias by the same distance.

        An explicit threshold, in either of them, allows two distances.
        """
        super().check_data(classes, partition)
        other = getattr(partition, "distance", self.distance)
        thresholds = (self.threshold, getattr(partition, "threshold", None))
        if other != self.distance and thresholds == (None, None):
            raise LogicError(
                f"the partition measures extreme bias by {other}, but the selector fedaim by "
                f"{self.distance}; set the same distance in both, or set the selector's threshold"
            )

    @property
    def _theta(self) -> float:
        if self.threshold is not None:
            return self.threshold
        return usual_threshold(self.distance, self.classes)

    @property
    def asks(self) -> tuple[Question, ...]:
        """The histogram of the labels, or its distance from uniform alone."""
        name = LABELS if self.reveal == "histogram" else self.distance
        return (Question(name, classes=self.classes),)

    def run(self, round: OpenRound) -> Run[None]:
        """Let all available clients train, in the lanes of the split."""
        (question,) = self.asks
        if (yield from round.ask(question, once=True)):
            reported = ReportedLabels.of(round.survey[question.name], question)
            round.survey[question.name] = reported.kept(round.survey[question.name])
            if reported.clients != Split.of(round.memory).clients:
                seed = derive(round.seed, "on_survey")
                round.memory = self._split(reported, seed).memory()
        split, there = Split.of(round.memory), set(round.clients)
        alone = [client for client in split.unbiased if client in there]
        lines = present(split.mediators, there)
        end = "" if alone and lines else ALONE
        for client in alone:  # algorithm 2: L_NEBC, at NEBS (equations 4 to 6)
            round.train(client, group=NEBS + end)
        for line in lines:  # L_EBC: each mediator from client to client, at EBS
            round.train_lane(round.rng.permutation(line) if self.shuffle else line, group=EBS + end)
        yield from round.until_all()

    def _split(self, reported: ReportedLabels, seed: int) -> Split:
        """Return the clients in two parts, by the labels that they reported."""
        counts, reference = None, uniform(self.classes)
        if self.reveal == "distance":
            emd = reported.values
        else:
            counts = reported.values
            if self.reference == "pooled" and reported.clients:
                reference = shares(counts.sum(0))
            emd = DISTANCES[self.distance](counts, reference)
        lines = self._lines(reported.clients, emd, counts, reference, seed)
        return Split(reported.clients, emd, lines)

    def _lines(
        self,
        clients: Sequence[int],
        emd: np.ndarray,
        counts: np.ndarray | None,
        reference: np.ndarray,
        seed: int,
    ) -> Lines:
        """Return the extremely biased clients of each mediator, in the order of their training."""
        # A little less: rounding may put a client below the threshold that it is exactly on.
        rows = np.flatnonzero(emd >= self._theta - 1e-9)
        if not rows.size:
            return ()
        sizes = even(rows.size, self.mediators)
        if counts is None or self.schedule == "random":
            places = at_random([clients[row] for row in rows], sizes, seed)
        else:
            distance = DISTANCES[self.distance]
            fill = greedy_fill if self.schedule == "greedy" else balanced
            places = fill(counts[rows], sizes, lambda pooled: distance(pooled, reference))
        return tuple(tuple(clients[rows[place]] for place in line) for line in places)


class _Server(WeightedSum):
    """The mean of the lanes of one of the two servers."""

    def __init__(self, state: ServerState, start: tuple[np.ndarray, np.ndarray]) -> None:
        super().__init__(state)
        self._start = start

    @cached_property
    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and buffers after the round; those from before it if no client returned."""
        if not self.weight:
            return self._start
        return moved(self._start[0], self.mean()), self.buffers.mean()


@dataclass
class _Round:
    nebs: _Server
    ebs: _Server
    buffers: BufferMean
    bias: Mapping[int, float]
    alone: str = ""  # the server that alone has clients in this round; empty: both have
    samples: dict[int, int] = field(default_factory=dict)  # of the clients of NEBS that counted
    losses: dict[int, float] = field(default_factory=dict)  # that they reported


@dataclass(frozen=True)
class FedAim(Aggregator):
    """NEBS averages single clients, EBS averages mediators; their models are mixed when they differ
    much.

    FedAIM, algorithm 2, equations 4 to 21. w^NEBS is the mean of the clients that are not extremely
    biased by their samples; w^EBS that of the mediators' models by B_m = sum_k n_k / EMD_k over the
    mediator's clients that counted. loss_t is the mean by samples, over the clients of NEBS that
    counted, of the loss of w_t^NEBS before any exchange. The servers are stable if
    (loss_t - loss_{t-1}) / loss_{t-1} is at most `tolerance`, and in the first round. If they are,
    and ||w^EBS - w^C|| / ||w^C|| is at least `divergence`, then w^C = alpha w^NEBS +
    (1 - alpha) w^EBS with alpha by the entropies of the two models (see `entropy`), from which both
    servers continue. The global model is w^C. Buffers are averaged by samples.

    Without extremely biased clients, or with a selector that makes no groups, w^C is w^NEBS, which
    is FedAvg. Without other clients w^C is w^EBS. In a round in which only one server has clients,
    w^C is the model of that server. There is no exchange in a round in which NEBS has clients and
    none of them returned, or none told the loss. It keeps loss_{t-1}, the number of exchanges and
    the last alpha, and between exchanges w^NEBS and w^EBS, two models of groups.

    NEBS has no samples, so it asks these clients, each of which gets one more model and sends one
    number. Equation 15 compares the losses of two models w^NEBS, and algorithm 2 computes the loss
    (line 6) after the training (line 4) and before the exchange: so this is the default. The losses
    of equation 15 are those of consecutive rounds, and line 10 stores loss_{t-1} only with an
    exchange. Here the equation is the default: with line 10, a loss that has risen by more than the
    tolerance since the last exchange would end all further ones.

    Attributes:
        divergence: theta_WD, the least relative distance of the two models for an exchange.
        tolerance: theta_loss, the largest relative rise of the loss for an exchange.
        amplitude: A, from 0 to 1; alpha lies between 0.5 - A / 2 and 0.5 + A / 2.
        steepness: c.
        bins: Y, intervals of the histogram from which the entropy is computed.
        loss_rule: ``"signed_rel"`` is this test, as equation 15 is printed; ``"abs_rel"`` takes the
            absolute value of the quotient, as the text explains "stable" by a small difference;
            ``"signed_abs"`` does not divide, as line 7 is printed.
        sync_back: whether both servers continue from w^C after an exchange; else each continues
            from its own model.
        loss_of: the model of loss_t: ``"new"``, w_t^NEBS, about which NEBS asks its clients; or
            ``"received"``, the model that they trained from, which after an exchange is w^C. That
            costs no message, and a pass over the samples of all clients.
        last_loss: which loss is loss_{t-1}: that of the last ``"round"``, or that of the last
            ``"exchange"`` (line 10, inside of the `if`).
    """

    name = "fedaim"

    divergence: NotNegative = 0.015
    tolerance: NotNegative = 0.1
    amplitude: Share = 0.5
    steepness: NotNegative = 1.0
    bins: Annotated[int, Ge(2)] = 10
    loss_rule: Literal["signed_rel", "abs_rel", "signed_abs"] = "signed_rel"
    sync_back: bool = True
    loss_of: Literal["new", "received"] = "new"
    last_loss: Literal["round", "exchange"] = "round"

    provides = frozenset({Trait.BY_SAMPLES, Trait.BY_SLICES})

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({Need.ASKED_LOSS if self.loss_of == "new" else Need.RECEIVED_LOSS})

    def inspect(self, update: Update) -> None:
        """Reject an update without the received model's loss, if that counts."""
        if self.loss_of == "received" and "loss" not in update.metrics:
            raise Rejected("an update without the received model's loss, which fedaim needs")

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        return super().start(state, _server_of(group))

    def init(self, state: ServerState) -> _Round:
        nebs, ebs = (_Server(state, self.start(state, server)) for server in (NEBS, EBS))
        return _Round(nebs, ebs, BufferMean(state), Split.of_state(state).bias)

    def add(self, total: _Round, contribution: Contribution) -> _Round:
        total.buffers.add(contribution)
        if contribution.group.endswith(ALONE):
            total.alone = _server_of(contribution.group)
        if _server_of(contribution.group) == EBS:
            total.ebs.add(contribution, _weight(contribution, total.bias))
            return total
        total.nebs.add(contribution, float(contribution.samples))
        for update in contribution.updates:
            total.samples[update.client] = update.samples
            if self.loss_of == "received":
                total.losses[update.client] = float(update.metrics["loss"])
        return total

    def inquire(self, total: _Round, state: ServerState) -> tuple[Question, Sequence[int]] | None:
        """Ask the clients of NEBS for the loss of its new model, if there are two servers."""
        split = Split.of_state(state)
        if self.loss_of != "new" or not (split.mediators and split.unbiased and total.samples):
            return None
        weights, buffers = total.nebs.model
        return Question("loss", weights=weights, buffers=buffers), tuple(total.samples)

    def on_answers(self, total: _Round, answers: Mapping[int, Slot]) -> _Round:
        """Keep the losses that are finite numbers."""
        for client, answer in answers.items():
            loss = answer.get("loss")
            if isinstance(loss, float) and math.isfinite(loss):
                total.losses[client] = loss
        return total

    def finish(self, total: _Round, state: ServerState) -> ServerState:
        """Return the state after both means, and the exchange if it is time for one."""
        kept = dict(state.memory.get(AGGREGATE, {}))
        nebs, ebs = total.nebs.model, total.ebs.model
        last, loss, stable = kept.get("last_loss"), 0.0, False
        if total.losses:
            samples = {client: float(total.samples[client]) for client in total.losses}
            loss = sum_in_order(samples[one] * told for one, told in total.losses.items())
            loss /= sum_in_order(samples.values())
            stable = self._stable(loss, last)
            if self.last_loss == "round":
                kept["last_loss"] = loss
        split = Split.of_state(state)
        if not split.mediators or not split.unbiased:
            return _central(state, kept, nebs if not split.mediators else ebs)
        if total.alone:  # the other server keeps its model until its clients return
            return _central(state, kept, nebs if total.alone == NEBS else ebs, (total.alone,))
        if stable and self._apart(ebs[0], state.weights):
            h_nebs, h_ebs = (entropy(weights, self.bins) for weights, _ in (nebs, ebs))
            alpha = share(h_nebs, h_ebs, self.amplitude, self.steepness)
            exchanges = kept.get("exchanges", 0) + 1
            kept |= {"alpha": alpha, "exchanges": exchanges, "last_loss": loss}
            mixed = np.multiply(nebs[0], alpha, dtype=np.float64)
            add_scaled(mixed, ebs[0], 1 - alpha)
            model = (mixed.astype(np.float32), total.buffers.mean())
            if self.sync_back:
                return _central(state, kept, model)
            state = replace(state, weights=model[0], buffers=model[1])
        models = {**state.models, NEBS: nebs, EBS: ebs}
        return replace(state, models=models, memory={**state.memory, AGGREGATE: kept})

    def _stable(self, loss: float, last: float | None) -> bool:
        if last is None:
            return True
        if self.loss_rule == "signed_abs":
            return loss - last <= self.tolerance
        if last <= 0:  # a relative change is not defined
            return loss <= last
        change = (loss - last) / last
        return (abs(change) if self.loss_rule == "abs_rel" else change) <= self.tolerance

    def _apart(self, ebs: np.ndarray, central: np.ndarray) -> bool:
        size = norm(central)
        return size == 0 or norm(ebs - central) / size >= self.divergence


def _server_of(group: str) -> str:
    server = group.removesuffix(ALONE)
    if server not in ("", NEBS, EBS):
        raise LogicError(
            f"the aggregator fedaim has the groups {NEBS} and {EBS}, and the selector made a group "
            f"{group!r}; use the selector fedaim"
        )
    return server or NEBS


def _weight(contribution: Contribution, bias: Mapping[int, float]) -> float:
    """Return B_m, the weight of a mediator, over its clients that counted."""
    unknown = [u.client for u in contribution.updates if u.client not in bias]
    if unknown:
        raise LogicError(
            f"fedaim weighs mediators by the biases of their clients, and the selector keeps no "
            f"bias of clients {unknown}; use the selector fedaim"
        )
    shares = (u.samples / max(bias[u.client], LEAST_BIAS) for u in contribution.updates)
    return sum_in_order(shares)


def _central(
    state: ServerState,
    kept: dict[str, Any],
    model: tuple[np.ndarray, np.ndarray],
    servers: tuple[str, ...] = (NEBS, EBS),
) -> ServerState:
    """Return the state with this central model, from which these servers continue."""
    models = {group: kept for group, kept in state.models.items() if group not in servers}
    memory = {**state.memory, AGGREGATE: kept}
    return replace(state, weights=model[0], buffers=model[1], models=models, memory=memory)


@dataclass(frozen=True, eq=False)
class Split:
    """The clients that reported their labels, in two parts.

    Attributes:
        clients: all of them, ascending.
        emd: float64 (n,), the bias of each.
        mediators: the extremely biased ones, mediator by mediator.
    """

    clients: tuple[int, ...] = ()
    emd: np.ndarray = field(default_factory=lambda: np.zeros(0))
    mediators: Lines = ()

    @cached_property
    def bias(self) -> Mapping[int, float]:
        """The bias by client."""
        return dict(zip(self.clients, self.emd.tolist(), strict=True))

    @cached_property
    def unbiased(self) -> tuple[int, ...]:
        """The clients that are not extremely biased, ascending."""
        biased = {client for line in self.mediators for client in line}
        return tuple(client for client in self.clients if client not in biased)

    def memory(self) -> Memory:
        """Return the split as named arrays."""
        clients = np.array(self.clients, np.int64)
        return {"clients": clients, "emd": self.emd, **kept_lines(self.mediators)}

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> Split:
        """Return the split that was kept, or an empty one."""
        if "emd" not in memory:
            return cls()
        return cls(tuple(memory["clients"].tolist()), memory["emd"], lines_of(memory))

    @classmethod
    def of_state(cls, state: ServerState) -> Split:
        """Return the split that the selector kept in this state, or an empty one."""
        return cls.of(state.memory.get(SELECT, {}))


def entropy(vector: np.ndarray, bins: int = 10) -> float:
    """Return H = -sum_y p_y lg p_y over `bins` equal intervals, least to greatest value.

    The last interval is closed; lg is the decimal logarithm. The entropy of equal values is 0.
    """
    least, most = (float(vector.min()), float(vector.max())) if vector.size else (0.0, 0.0)
    if not least < most:
        return 0.0
    found = np.zeros(bins, np.int64)
    for start in range(0, vector.size, BLOCK):
        part = vector[start : start + BLOCK].astype(np.float64)
        found += np.histogram(part, bins, (least, most))[0]
    p = found[found > 0] / vector.size
    return float(-(p * log(p)).sum() / math.log(10))


def share(first: float, second: float, amplitude: float = 0.5, steepness: float = 1.0) -> float:
    """Return alpha = A / pi arctan(c (H_1 - H_2)) + 1/2, the share of the model with entropy H_1.

    FedAIM, equation 16. The paper prints 0 for the constant 1/2, and A for A / pi, and the result
    is not a share; filter grafting (Meng et al. 2020), the source of the function, has these.

    Args:
        first: H_1.
        second: H_2.
        amplitude: A, from 0 to 1; alpha is between 0.5 - A / 2 and 0.5 + A / 2.
        steepness: c.
    """
    return amplitude / math.pi * math.atan(steepness * (first - second)) + 0.5


@settings_of_parts()
def fedaim() -> Preset:
    """FedAIM: mediators for extremely biased clients, FedAvg for the others, and an exchange."""
    return Preset(FedAimSplit(), FedAim())
