"""Astraea (Duan et al. 2019): mediators with balanced data, and rebalanced samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le, Lt

from layers.arithmetic import cos_sin
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.mediators import (
    LABELS,
    ReportedLabels,
    greedy_fill,
    kept_lines,
    lines_of,
    of_size,
    present,
    reported_histograms,
)
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientContext, ClientSide, Hook, ServerContext, ServerSide
from layers.logic.core.messages import Task, vector_in
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError, Rejected
from layers.logic.numeric.distances import kullback_leibler, uniform
from layers.settings import Count, Decay, Positive, Share

RATIOS = "ratios"

MOST = 100.0  # without a limit one absurd histogram would let all clients train without end

AT_ONCE = 1 << 18  # pixels that are computed together, so that memory stays small


@dataclass(frozen=True)
class Astraea(Selector):
    """All clients in every round, in a lane of gamma clients for each mediator.

    Duan et al. 2019, "Astraea: Self-balancing Federated Learning for Improving Classification
    Accuracy of Mobile Deep Learning Applications", algorithm 3: a mediator takes
    argmin_k KL(P_m + P_k || uniform) until it has gamma clients. In a round a mediator goes through
    its clients E_m times in a row.

    At most 10,000 clients.

    It asks the clients for the histogram of their labels once, before their first round, and makes
    the lanes again when a client joins later. A client without a valid answer takes no part until
    it has answered. The selector keeps the lanes.

    Attributes:
        gamma: clients of a mediator; the last mediator has the clients that are left.
        classes: number of labels, C.
        above: T_d of the hook `rebalance`, if there is one: the lanes are then made from the
            samples that clients will train on. None: from the samples that they have.
        mediator_epochs: E_m, how often a mediator goes through its clients in a round.
    """

    name = "astraea"

    gamma: Count = 10
    classes: Annotated[int, Ge(2)] = 10
    above: Positive | None = None
    mediator_epochs: Count = 1

    requires = frozenset({Need.TOLD})
    provides = frozenset({Trait.ONLY_LABELS})

    most_clients = 10_000
    why_limited = "every client takes part in every round, and mediators are filled from all"

    @property
    def tasks_per_round(self) -> int:
        """One in each pass."""
        return self.mediator_epochs

    @property
    def asks(self) -> tuple[Question, ...]:
        return (Question(LABELS, classes=self.classes),)

    def run(self, round: OpenRound) -> Run[None]:
        """Let all available clients train, in the lanes of the mediators."""
        (question,) = self.asks
        if (yield from round.ask(question, once=True)):
            reported = ReportedLabels.of(round.survey[LABELS], question)
            round.survey[LABELS] = reported.kept(round.survey[LABELS])
            lined = (client for line in lines_of(round.memory) for client in line)
            if reported.clients != tuple(sorted(lined)):
                round.memory = kept_lines(self._lines(reported))
        for line in present(lines_of(round.memory), set(round.clients)):  # each mediator, E_m times
            round.train_lane(line, passes=self.mediator_epochs)
        yield from round.until_all()

    def _lines(self, reported: ReportedLabels) -> list[list[int]]:
        """Return the clients of each mediator."""
        clients, counts = reported.clients, reported.values
        if self.above is not None:
            counts = counts * ratios(counts.sum(0), self.above)
        reference = uniform(self.classes)
        places = greedy_fill(
            counts,
            of_size(len(clients), self.gamma),
            lambda pooled: kullback_leibler(pooled, reference),
        )
        return [[clients[place] for place in line] for line in places]


@dataclass(frozen=True)
class Rebalance(Hook):
    """The server sends a ratio for each class, and clients add or drop samples by it.

    Duan et al. 2019 (Astraea), algorithm 2: the z-score of a class's number of samples over all
    clients says whether the class is far too rare or too frequent, and by what ratio (see
    `ratios`). A sample of a class with ratio r is taken floor(r) times, and once more with
    probability r - floor(r), the same samples in every round. With `augment`, as in the paper, a
    sample that is taken again is a new image, made from it by a random shift, rotation, shear and
    zoom, the same ones in every round; without, it is repeated. n_k counts the samples that are
    trained on.

    The hook needs a selector that asks for the labels. The server sends one float64 for each class.

    Attributes:
        above: T_d; a class is too frequent if its z-score is above it, too rare if below -1 / T_d.
        augment: whether further samples of a rare class are new images; the samples must be images.
        shift: the largest shift of a new image in each direction, as a share of its width or
            height.
        rotation: the largest rotation of a new image to each side, in degrees, up to 180.
        shear: the largest shear of a new image to each side, in degrees, below 90.
        zoom: the largest change of the width and height of a new image, below 1.
    """

    name = "rebalance"

    above: Positive = 3.0
    augment: bool = False
    shift: Share = 0.1
    rotation: Annotated[float, Ge(0), Le(180)] = 10.0
    shear: Annotated[float, Ge(0), Lt(90)] = 10.0
    zoom: Decay = 0.1

    requires = frozenset({Need.LABELS})

    def check(self, logic: Parts) -> None:
        if all(question.name != LABELS for question in logic.selector.asks):
            raise LogicError(
                f"{type(self).__name__} uses the labels of all clients, but "
                f"{type(logic.selector).__name__} does not ask for them; use a selector that does, "
                "such as astraea"
            )

    class Server(ServerSide["Rebalance"]):
        def __init__(self, hook: Rebalance) -> None:
            super().__init__(hook)
            self._ratios: np.ndarray | None = None

        def send(self, task: Task, context: ServerContext) -> Task:
            if (self._taken(context) != 1).any():
                context.slot[RATIOS] = self._taken(context)
            return task

        def most_samples(self, samples: int, context: ServerContext) -> int:
            # A sample is taken floor(r) times or once more, and a client keeps one at least.
            most = math.ceil(float(self._taken(context).max(initial=1.0)))
            return max(samples * most, 1)

        def _taken(self, context: ServerContext) -> np.ndarray:
            """Return the ratio of each class, float64 (classes,)."""
            if self._ratios is None:
                answers = context.answers.get(LABELS, {})
                classes = max((answer["histogram"].size for answer in answers.values()), default=0)  # type: ignore[union-attr]
                _, counts = reported_histograms(answers, classes)
                self._ratios = ratios(counts.sum(0), self.hook.above)
            return self._ratios

    class Client(ClientSide["Rebalance"]):
        def samples(self, data: Data, context: ClientContext) -> Data:
            if RATIOS not in context.slot:
                return data
            sent = vector_in(context.slot, RATIOS, "ratios of the classes", np.float64)
            if data.y.max(initial=-1) >= sent.size:
                raise Rejected(
                    f"ratios of {sent.size} classes, but this client has label {data.y.max()}"
                )
            ratio = sent[data.y]
            chance = context.run_rng().random(len(data))
            times = np.floor(ratio).astype(np.int64) + (chance < ratio - np.floor(ratio))
            if not times.any():
                times[np.argmax(ratio)] = 1  # a client must have something to train on
            rows = np.repeat(np.arange(len(data)), times)
            x = data.x[rows]
            hook = self.hook
            if hook.augment:
                check_images(x)
                again = np.flatnonzero(rows[1:] == rows[:-1]) + 1
                moves = Augmentation(hook.shift, hook.rotation, hook.shear, hook.zoom)
                x[again] = moves.new_images(x[again], context.run_rng("augment"))
            return ArrayData(x, data.y[rows])


def ratios(numbers: np.ndarray, above: float = 3.0, below: float | None = None) -> np.ndarray:
    """Return float64 (C,): the factor for the samples of each class; 1 leaves a class alone.

    A class far below or above the mean, by its z-score, is brought up or down: its new z-score is
    the geometric mean of its z-score and the one that is allowed (Duan et al. 2019, algorithm 2).

    With mean m and standard deviation s (of C - 1 degrees of freedom) of the `numbers` (C,), and
    z = (number - m) / s: (m - s sqrt(z T_a)) / number where z < T_a, (m + s sqrt(z T_d)) / number
    where z > T_d; at most 100. A class without samples is left alone.

    Args:
        numbers: samples of each class over all clients.
        above: T_d, above 0.
        below: T_a, below 0; None: -1 / T_d.
    """
    numbers = np.asarray(numbers, np.float64)
    factors = np.ones(numbers.size)
    spread = numbers.std(ddof=1) if numbers.size > 1 else 0.0
    if spread == 0:
        return factors
    below = -1 / above if below is None else below
    mean, z = numbers.mean(), (numbers - numbers.mean()) / spread
    few, many = (z < below) & (numbers > 0), z > above
    factors[few] = (mean - spread * np.sqrt(z[few] * below)) / numbers[few]
    factors[many] = (mean + spread * np.sqrt(z[many] * above)) / numbers[many]
    return np.minimum(factors, MOST)


@dataclass(frozen=True)
class Augmentation:
    """How far an image may be moved; each amount is drawn uniformly for each image.

    The paper names the four ways and gives no amounts. A pixel of the new image is interpolated
    linearly between four pixels of the old one; beyond its border the nearest pixel of the border
    counts, so that no background colour need be known.

    Attributes:
        shift: the most in each direction, as a share of the image's width or height, 0 to 1.
        rotation: the most to each side, in degrees, 0 to 180.
        shear: the most to each side, in degrees, from 0 to below 90.
        zoom: width and height change by a factor of 1 - zoom to 1 + zoom each, from 0 to below 1.
    """

    shift: float = 0.1
    rotation: float = 10.0
    shear: float = 10.0
    zoom: float = 0.1

    def new_images(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return as many new images, the n-th made from the n-th; the same bits on every numpy.

        Args:
            images: floating-point (n, channels, height, width).
            rng: the generator of all draws.
        """
        draws = 2 * rng.random((len(images), 6)) - 1
        made = np.empty_like(images)
        step = max(AT_ONCE // max(images[0].size, 1), 1) if len(images) else 1
        for start in range(0, len(images), step):
            some = slice(start, start + step)
            made[some] = self._moved(images[some], draws[some])
        return made

    def _moved(self, images: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Return images (n, channels, height, width), each moved by its draws, float64 (n, 6)."""
        height, width = images.shape[2:]
        right, down, turn, lean, wide, high = (one[:, None, None] for one in draws.T)
        cos, sin = cos_sin(self.rotation * turn)
        lean_cos, lean_sin = cos_sin(self.shear * lean)
        middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
        x = (np.arange(width) - middle_x)[None, None, :] * (1 + self.zoom * wide)
        y = (np.arange(height) - middle_y)[None, :, None] * (1 + self.zoom * high)
        x = x + y * (lean_sin / lean_cos)
        x, y = cos * x - sin * y, sin * x + cos * y
        x = np.clip(x + (middle_x + self.shift * width * right), 0, width - 1)
        y = np.clip(y + (middle_y + self.shift * height * down), 0, height - 1)
        return _between(images, x, y)


def check_images(x: np.ndarray) -> None:
    """Check that samples are images.

    Raises:
        LogicError: they are not floating-point numbers of shape (n, channels, height, width).
    """
    if x.ndim != 4 or not np.issubdtype(x.dtype, np.floating):
        raise LogicError(
            f"augment makes new images of (channels, height, width), and these samples have shape "
            f"{x.shape[1:]} and type {x.dtype}; leave augment out, so that they are repeated"
        )


def _between(images: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values of images (n, c, h, w) at the points x, y, each (n, h, w), linearly."""
    number, channels, height, width = images.shape
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    across, along = (x - left)[:, None], (y - top)[:, None]
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    flat = images.reshape(number, channels, height * width)

    def at(row: np.ndarray, column: np.ndarray) -> np.ndarray:
        places = (row * width + column).reshape(number, 1, height * width)
        found: np.ndarray = np.take_along_axis(flat, places, axis=2).reshape(images.shape)
        return found.astype(np.float64)

    upper, lower = at(top, left), at(bottom, left)
    upper += across * (at(top, right) - upper)
    lower += across * (at(bottom, right) - lower)
    upper += along * (lower - upper)
    return upper.astype(images.dtype)


@settings_of_parts(fixed={"above": "`rebalance` sets it, in the selector and in the hook"})
def astraea(rebalance: float | None = None, augment: bool = False) -> Preset:
    """Astraea (Duan et al. 2019): all clients, one after the other at mediators with balanced data.

    Args:
        rebalance: T_d. Clients train on fewer samples of a class whose z-score is above it, and on
            more of a class whose z-score is below -1 / T_d. None: on the samples that they have.
        augment: whether these further samples are new images, as in the paper, instead of
            repetitions; it needs `rebalance`, and samples that are images.
    """
    if augment and rebalance is None:
        raise LogicError("augment makes the further samples of rare classes; set rebalance, too")
    hooks = () if rebalance is None else (Rebalance(rebalance, augment),)
    return Preset(Astraea(above=rebalance), Mean(), hooks)
