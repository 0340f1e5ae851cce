"""FedSSO: strata of clients with similar first local steps, and the mean of their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from annotated_types import Ge

from layers.logic.aggregators.mean import BufferMean, Mean, add_scaled, moved, stepped
from layers.logic.client_sizes import ClientSizes
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import Slot, vector_in
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import SELECT, Selector
from layers.logic.core.state import Memory, ServerState, frozen
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError, Rejected
from layers.settings import Fraction, Positive, Share, WholeNumber

STEP = "step"

STEPS_BYTES = 16 << 30  # of the steps of all clients, at the most

STRATA = "strata"

NOISE = -1
"""The label of a client that is in no cluster."""

BLOCK = 1 << 12  # values of each vector at a time, so that no second copy of them all is made

# Two vectors with a lower squared distance, in squared lengths, are equal except for rounding.
SAME = 1e-12

# Of more clients the N x N values are in memory once, and every step on them goes row by row.
WHOLE = 4096

ROWS = 256  # at a time

WORKING_MB = 64  # of scikit-learn

POWERS, COMPONENTS = 12, 8  # of the power iterations; their points are for a figure alone


@dataclass(frozen=True)
class FedSSO(Selector):
    """Draws uniformly from every stratum; a stratum has clients with similar first steps.

    Source: FedSSO, algorithm 1.

    Before round 1 every client takes one step on all of its samples from w_0 and sends
    w_1^i = w_0 - eta_0 grad F_i(w_0). OPTICS clusters these once, and round 1 starts from
    w_1 = sum_i (n_i / n) w_1^i. Each round draws q_c = max(1, round(beta |c|)) clients of each
    stratum c, halves rounded up, from the available ones; all of them if there are fewer. A stratum
    closes when q_c of its clients have returned (section 3.4.2): over-selection asks more clients
    of the same stratum, and no stratum takes the place of another.

    It works with at most 15,000 clients: their N x N distances, and a copy of them while they are
    clustered, take 16 N^2 bytes. The steps must fit into memory, too; a sketch makes them shorter.

    A client has no cluster, and its step is not in w_1, if it joined later, did not answer, or
    sent an answer that cannot be a model (a wrong size or type, NaN). Non-trainable state stays
    that of w_0. A client reveals its step, which divided by the learning rate is its gradient over
    all of its samples.

    It keeps a `Clustering`; the steps themselves, d floats a client, are forgotten.

    Attributes:
        beta: share of a stratum in a round.
        learning_rate: eta_0, the learning rate of the first step.
        min_samples: a setting of OPTICS: the number of clients, itself included, that make the
            neighbourhood of a client dense.
        xi: a setting of OPTICS: the relative steepness in the reachability plot that ends a
            cluster.
        noise: whether the clients in no cluster form one more stratum (``"stratum"``), are never
            asked (``"drop"``), or are a stratum each (``"singletons"``).
        sketch: the number of values of a sketch that a client sends in place of its step; a sketch
            is shorter and reveals less, and round 1 then starts from w_0. 0: the step itself.
        ask: the clients that train in a round: ``"drawn"``, the q_c that are drawn of each stratum,
            and more with over-selection; ``"all"``, every available client of each stratum, of
            which the first q_c to return count, as section 3.4.2 prints it.
    """

    name = "fedsso"

    beta: Share = 0.1
    learning_rate: Positive = 0.01
    min_samples: Annotated[int, Ge(2)] = 2
    xi: Fraction = 0.25
    noise: Noise = "stratum"
    sketch: WholeNumber = 0
    ask: Literal["drawn", "all"] = "drawn"

    requires = frozenset({Need.SGD, Need.TOLD})
    most_clients = 15_000
    why_limited = "the distances of every two clients' first steps are in memory"

    def check(self, logic: Parts) -> None:
        """Refuse a reserve where all are asked, a sketch that is longer than the model, and steps
        that no memory holds."""
        if self.ask == "all" and logic.over_select != 1:
            raise LogicError(
                f"fedsso: ask: all asks every client, so that none is left for over_select "
                f"{logic.over_select:g}; set over_select to 1, or ask to drawn"
            )
        if self.sketch > logic.size:
            raise LogicError(
                f"fedsso: a sketch of {self.sketch} values of a model that has {logic.size}; "
                "lower sketch, or leave it out"
            )
        step_bytes = 4 * (self.sketch or logic.size)
        if (logic.clients or 0) * step_bytes > STEPS_BYTES:
            raise LogicError(
                f"fedsso: the first steps of {logic.clients:,} clients take "
                f"{(logic.clients or 0) * step_bytes / 2**30:.0f} GiB, {STEPS_BYTES >> 30} being "
                "the most; set sketch, as in sketch: 1000"
            )

    @property
    def asks(self) -> tuple[Question, ...]:
        return (Question(STEP, learning_rate=self.learning_rate, values=self.sketch),)

    def run(self, round: OpenRound) -> Run[None]:
        """Let clients of each stratum train; a stratum closes when q_c of them have returned."""
        asked = round.sizes
        if (yield from round.ask(self.asks[0], once=True)):
            self._cluster(round, asked)  # algorithm 1: OPTICS and w_1; later, newcomers are noise
        clients, labels = _labelled(round.sizes, Clustering.of(round.memory))
        strata, names = grouped(clients, labels, self.noise)
        sizes = np.bincount(strata[strata >= 0], minlength=len(names))
        here = np.isin(clients, round.sizes.ids) & (strata >= 0)
        clients, strata = clients[here], strata[here]
        there = np.bincount(strata, minlength=len(names))
        needed = np.minimum(allocation(self.beta, sizes), there).tolist()  # q_c of each stratum
        if self.ask == "all":  # without a clock the first of the round count
            places = np.lexsort((round.rng.random(strata.size), strata))
        else:
            number = map(round.asked, needed, there.tolist())
            places = drawn(strata, np.array(list(number), np.int64), round.rng)
        for client, stratum in zip(clients[places].tolist(), strata[places].tolist(), strict=True):
            round.train(client, group=names[stratum])
        yield from round.until({name: n for name, n in zip(names, needed, strict=True) if n})

    def _cluster(self, round: OpenRound, sizes: ClientSizes) -> None:
        """Find the strata and w_1 the first time; later, count newcomers among the noise.

        Args:
            round: the round, with the answers.
            sizes: the clients that were asked, with their numbers of samples.
        """
        answers, kept = round.survey[STEP], Clustering.of(round.memory)
        clients, labels = _labelled(sizes, kept)
        points = np.full((clients.size, 2), np.nan)
        samples = np.array([sizes.get(int(client), 0) for client in clients], np.int64)
        if kept.clients.size:
            before = np.searchsorted(clients, kept.clients)
            points[before] = kept.points
            samples[before] = kept.samples
        else:
            key, origin = "weights", round.weights
            if self.sketch:
                key, origin = "sketch", np.zeros(self.sketch, np.float32)
            places, steps = _sound(answers, clients, key, origin)
            if steps:
                inner = products(steps, origin)
                points[places] = projection(inner)  # first, since `clusters` overwrites it
                labels[places] = clusters(inner, self.min_samples, self.xi)
            if steps and not self.sketch:
                round.weights = _mean(steps, samples[places], round.weights)
        strata = _strata(clients, labels, samples, self.noise)
        round.survey[STEP] = {client: {} for client in answers}  # the steps are forgotten
        round.memory = Clustering(clients, labels, samples, points, strata).memory()


def _labelled(there: ClientSizes, kept: Clustering) -> tuple[np.ndarray, np.ndarray]:
    """Return the clients that are known or there, ascending, and the label of each."""
    clients = np.union1d(kept.clients, there.ids)
    labels = np.full(clients.size, NOISE, np.int64)
    labels[np.searchsorted(clients, kept.clients)] = kept.labels
    return clients, labels


def _sound(
    answers: Mapping[int, Slot], clients: np.ndarray, key: str, like: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the places, int64, of clients that answered with a vector like `like`, and these."""
    places, steps = [], []
    for place, client in enumerate(clients.tolist()):
        with suppress(Rejected):
            steps.append(vector_in(answers.get(client, {}), key, "step", np.float32, like.size))
            places.append(place)
    return np.array(places, np.int64), steps


def _mean(steps: list[np.ndarray], samples: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return w_1, float32 (d,)."""
    total = np.zeros(weights.size)
    for step, n in zip(steps, samples.tolist(), strict=True):
        add_scaled(total, step, n / int(samples.sum()))
    add_scaled(total, weights, -1.0)
    return frozen(moved(weights, total))


def _strata(
    clients: np.ndarray, labels: np.ndarray, samples: np.ndarray, noise: Noise
) -> dict[str, Stratum]:
    strata, names = grouped(clients, labels, noise)
    inside = strata >= 0
    sizes = np.bincount(strata[inside], minlength=len(names))
    shares = np.bincount(strata[inside], samples[inside], minlength=len(names))
    return {
        name: Stratum(int(size), int(share))
        for name, size, share in zip(names, sizes, shares, strict=True)
    }


@dataclass
class _Sum:
    delta: np.ndarray  # of all clients (literal), or of the stratum that is open
    buffers: BufferMean
    strata: Mapping[str, Stratum]
    means: np.ndarray  # sum of the closed strata's means, each times its share; empty if literal
    shares: float = 0.0
    samples: int = 0
    clients: int = 0
    group: str | None = None
    closed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Stratified(Aggregator):
    """sum_c (n_c / n) sum_{k in S_c} n_k w_k / sum_{k in S_c} n_k, of the strata that returned.

    Source: FedSSO, equations 3, 12 and 15.

    n_c are the samples of all clients of stratum c, n those of the strata that returned. The
    selector keeps the strata (see `Clustering`) and names them in its plan, which lists the lanes
    of a stratum together. A stratum that the selector does not keep has the samples that returned.
    Memory is that of one update and two sums. Buffers are averaged by n_k.

    Attributes:
        mean: ``"stratified"`` is this rule. ``"literal"`` is (N / K) sum_k (n_k / n) w_k as printed
            in equation 3, with N clients that have n samples in all strata, and K clients that
            returned. Unless all n_k are equal, its weights do not sum to 1, and the model shrinks
            or grows.
    """

    name = "stratified"

    mean: Literal["stratified", "literal"] = "stratified"

    provides = frozenset({Trait.BY_SLICES, Trait.BY_SAMPLES})

    def init(self, state: ServerState) -> _Sum:
        size = state.weights.size
        means = np.zeros(size if self.mean == "stratified" else 0)
        strata = Clustering.of_state(state).strata
        return _Sum(np.zeros(size), BufferMean(state), strata, means)

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        if self.mean == "stratified" and contribution.group != total.group:
            _close(total)
            if contribution.group in total.closed:
                raise LogicError(
                    f"stratified: the lanes of the stratum {contribution.group!r} do not stand "
                    "together; call train for one stratum after the other"
                )
            total.group = contribution.group
        add_scaled(total.delta, contribution.delta, float(contribution.samples))
        total.samples += contribution.samples
        total.clients += 1
        total.buffers.add(contribution)
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        if self.mean == "stratified":
            _close(total)
            delta = total.means
            delta /= total.shares
        else:
            delta = _literal(total, state.weights)
        return stepped(state, delta, total.buffers.mean())


def _close(total: _Sum) -> None:
    """Add the mean of the open stratum to those of the closed ones, and close it."""
    if total.group is None:
        return
    known = total.strata.get(total.group)
    share = float(max(known.samples if known else 0, total.samples))
    add_scaled(total.means, total.delta, share / total.samples)
    total.shares += share
    total.closed.add(total.group)
    total.delta[:] = 0
    total.samples, total.group = 0, None


def _literal(total: _Sum, weights: np.ndarray) -> np.ndarray:
    """Return float64 (d,): a sum_k n_k w_k - w, where a = N / (K n)."""
    kept = total.strata.values()
    clients = sum(stratum.clients for stratum in kept) or total.clients
    samples = sum(stratum.samples for stratum in kept) or total.samples
    scale = clients / (total.clients * samples)
    total.delta *= scale
    add_scaled(total.delta, weights, scale * total.samples - 1)
    return total.delta


@dataclass(frozen=True)
class Stratum:
    """How many clients a stratum has, and how many samples they have together."""

    clients: int
    samples: int


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Clustering:
    """N clients and their strata; N is 0 before the clients were clustered.

    Attributes:
        clients: int64 (N,), ascending.
        labels: int64 (N,), the cluster of each; -1: in none.
        samples: int64 (N,), of each.
        points: float64 (N, 2), principal components of what was clustered; NaN for a client that
            sent nothing to cluster.
        strata: by name. Another selector may keep these alone.
    """

    clients: np.ndarray = field(default_factory=_none)
    labels: np.ndarray = field(default_factory=_none)
    samples: np.ndarray = field(default_factory=_none)
    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    strata: Mapping[str, Stratum] = field(default_factory=dict)

    def memory(self) -> Memory:
        """Return the clustering as named arrays and numbers."""
        return {
            "clients": self.clients,
            "labels": self.labels,
            "samples": self.samples,
            "points": self.points,
            STRATA: {name: asdict(stratum) for name, stratum in self.strata.items()},
        }

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> Clustering:
        """Return the clustering that a selector kept; an empty one if it keeps no strata.

        Raises:
            LogicError: the arrays are not as `memory` makes them.
        """
        if STRATA not in memory:
            return cls()
        columns = [memory.get(name, _none()) for name in ("clients", "labels", "samples")]
        points = memory.get("points", np.zeros((0, 2)))
        shape = np.shape(columns[0])
        whole = len(shape) == 1 and all(_is_array(one, "i", shape) for one in columns)
        try:
            strata = {name: Stratum(**kept) for name, kept in memory[STRATA].items()}
        except (AttributeError, TypeError):
            whole = False
        if not whole or not _is_array(points, "f", (*shape, 2)):
            raise LogicError(
                "the strata in the selector's memory cannot be read; start from a checkpoint that "
                "a run with the selector fedsso has written"
            )
        clients, labels, samples = columns
        return cls(clients, labels, samples, points, strata)

    @classmethod
    def of_state(cls, state: ServerState) -> Clustering:
        """Return the clustering that the selector kept in this state."""
        return cls.of(state.memory.get(SELECT, {}))


def _is_array(value: Any, kind: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind and value.shape == shape


Noise: TypeAlias = Literal["stratum", "drop", "singletons"]


def products(vectors: Sequence[np.ndarray], origin: np.ndarray) -> np.ndarray:
    """Return float64 (N, N): the inner products of N `vectors` (d,), each minus `origin` (d,)."""
    total = np.zeros((len(vectors), len(vectors)))
    rows = len(vectors) if len(vectors) <= WHOLE else ROWS
    for start in range(0, origin.size, BLOCK):
        part = slice(start, start + BLOCK)
        block = np.array([vector[part] for vector in vectors], np.float64)
        block -= origin[part]
        for first in range(0, len(vectors), rows):
            if rows == len(vectors):
                total += block @ block.T
            else:
                total[first : first + rows] += block[first : first + rows] @ block.T
    return total


def clusters(inner: np.ndarray, min_samples: int, xi: float) -> np.ndarray:
    """Return int64 (N,): the OPTICS label of each vector, `NOISE` for one in no cluster.

    Ankerst et al. 1999. Fewer than `min_samples` are one cluster.

    Args:
        inner: float64 (N, N), from `products`; of more than `WHOLE` vectors it is overwritten.
        min_samples: the number of neighbours, itself included, that make the neighbourhood of a
            vector dense.
        xi: the relative difference of two neighbours in the reachability plot from which on a
            cluster ends there.
    """
    if len(inner) < max(min_samples, 2):
        return np.zeros(len(inner), np.int64)
    import sklearn  # here, since the import takes a second and most runs do not need it
    from sklearn.cluster import OPTICS

    found = OPTICS(min_samples=min_samples, xi=xi, metric="precomputed", cluster_method="xi")
    distances = _distances(inner, out=None if len(inner) <= WHOLE else inner)
    with (
        np.errstate(divide="ignore", invalid="ignore"),  # the distance of equal vectors is 0
        # OPTICS would check all N x N values for each client again, which takes N^3 steps.
        sklearn.config_context(assume_finite=True, working_memory=WORKING_MB),
    ):
        return np.asarray(found.fit(distances).labels_, np.int64)


def projection(inner: np.ndarray) -> np.ndarray:
    """Return float64 (N, 2): the first two principal components of the vectors, for a figure.

    Args:
        inner: float64 (N, N), from `products`.
    """
    points = np.zeros((len(inner), 2))
    longest = float(inner.diagonal().max(initial=0))
    if len(inner) < 2 or longest == 0:
        return points
    from sklearn.decomposition import KernelPCA  # here, as above

    # With the inner products as kernel this is PCA, and its cost does not grow with d.
    if len(inner) > WHOLE:
        return _projection_of_many(inner)
    found = KernelPCA(2, kernel="precomputed", random_state=0).fit_transform(inner / longest)
    points[:, : found.shape[1]] = found * np.sqrt(longest)
    return points


def grouped(
    clients: np.ndarray, labels: np.ndarray, noise: Noise
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the stratum of each client, int64 (N,), and the names of the strata; -1: in none.

    When no client is in a cluster, all are in the stratum of noise, whatever `noise` says.

    Args:
        clients: int64 (N,), ids.
        labels: int64 (N,), of `clusters`.
        noise: whether the clients without a cluster are one stratum, are left out, or are a stratum
            each.
    """
    number = int(labels.max(initial=NOISE)) + 1
    names = [str(label) for label in range(number)]
    strata = labels.copy()
    alone = np.flatnonzero(labels == NOISE)
    if not alone.size or (noise == "drop" and number):
        return strata, tuple(names)
    if noise == "singletons" and number:
        strata[alone] = number + np.arange(alone.size)
        return strata, (*names, *(f"client {client}" for client in clients[alone]))
    strata[alone] = number
    return strata, (*names, "noise")


def allocation(beta: float, sizes: np.ndarray) -> np.ndarray:
    """Return int64 (C,): how many clients are drawn from strata of these sizes, at least 1."""
    # A little more, since 0.29 * 50 comes out below 14.5; halves are rounded up.
    shares: np.ndarray = np.floor(beta * sizes + 0.5 + 1e-9).astype(np.int64)
    return np.maximum(shares, 1)


def drawn(strata: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the places, int64, of a uniform draw without replacement from each stratum.

    They are ordered by stratum, and ascend within each.

    Args:
        strata: int64 (N,), the stratum of each place.
        wanted: int64 (C,), how many from each; of a smaller stratum all are drawn.
        rng: the generator of the draws.
    """
    order = np.lexsort((rng.random(strata.size), strata))
    kinds = strata[order]
    rank = np.arange(strata.size) - np.searchsorted(kinds, kinds)
    taken = order[rank < wanted[kinds]]
    places: np.ndarray = taken[np.lexsort((taken, strata[taken]))]
    return places


def _distances(inner: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return float64 (N, N): Euclidean distances, exactly 0 between equal vectors.

    Args:
        inner: float64 (N, N), the inner products.
        out: where to write them, which may be `inner`; None: into a new array.
    """
    lengths = inner.diagonal().copy()
    distances = np.empty_like(inner) if out is None else out
    for first in range(0, len(inner), ROWS):
        rows = slice(first, first + ROWS)
        both = lengths[rows, None] + lengths[None, :]
        squared = both - 2 * inner[rows]
        squared[squared < SAME * both] = 0
        distances[rows] = np.sqrt(squared)
    np.fill_diagonal(distances, 0)
    return distances


def _projection_of_many(inner: np.ndarray) -> np.ndarray:
    """Return float64 (N, 2), as `projection` does, by power iterations that do not copy `inner`.

    Source: Halko, Martinsson, Tropp, "Finding Structure with Randomness", 2011, algorithm 4.4.
    """

    def centred(points: np.ndarray) -> np.ndarray:
        """Return H K H points, H being the matrix that subtracts the mean."""
        points = points - points.mean(axis=0)
        result = inner @ points
        return np.asarray(result - result.mean(axis=0))

    # Any start leads to the same components; a fixed one draws the same figure of the same steps.
    basis = np.random.default_rng(0).standard_normal((len(inner), COMPONENTS))
    for _ in range(POWERS):
        basis, _ = np.linalg.qr(centred(basis))
    values, vectors = np.linalg.eigh(basis.T @ centred(basis))
    points = basis @ vectors[:, :-3:-1]
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(2)])
    return np.asarray(points * signs * np.sqrt(np.maximum(values[:-3:-1], 0)))


@settings_of_parts()
def fedsso(mean: Literal["normalised", "stratified", "literal"] = "normalised") -> Preset:
    """FedSSO (algorithm 1): strata by OPTICS of one-step updates, a share of each in every round.

    The paper's learning rate is 0.01 / (1 + t), and the survey's step is t = 0. So write
    `learning_rate: 0.01` here, and in `train` `learning_rate: 0.01` with
    `schedule: {name: inverse, start: 1}`.

    Args:
        mean: ``"normalised"`` is FedAvg's mean, with its `weights`; ``"stratified"`` and
            ``"literal"`` are those of the aggregator `stratified`.
    """
    aggregator: Aggregator = Mean() if mean == "normalised" else Stratified(mean)
    return Preset(FedSSO(), aggregator)
