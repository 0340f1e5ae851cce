"""Clients train on more samples of the rare classes and fewer of the frequent ones (Astraea)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from layers.logic.algorithms.astraea.augment import Augmentation, check_images
from layers.logic.algorithms.astraea.ratios import ratios
from layers.logic.algorithms.astraea.selector import check_above
from layers.logic.algorithms.mediators.histograms import reported_histograms
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientSide, Context, Hook, ServerSide
from layers.logic.core.messages import Task
from layers.logic.core.parts import Parts
from layers.logic.errors import LogicError, Rejected

LABELS = "labels"


@dataclass(frozen=True)
class Rebalance(Hook):
    """The server sends a ratio for each class, and clients add or drop samples by it.

    Duan et al. 2019 (Astraea), algorithm 2: the z-score of a class's number of samples over all
    clients says whether the class is far too rare or too frequent, and by what ratio (see
    `ratios`). A sample of a class with ratio r is taken floor(r) times, and once more with
    probability r - floor(r); in every round the same samples are. With `augment`, as in the paper,
    a sample that is taken again is a new image, made from it by a random shift, rotation, shear and
    zoom, the same ones in every round; without, it is repeated. n_k counts the samples that are
    trained on.

    The hook needs a selector that asks for the labels. One float64 for each class goes down.

    Attributes:
        above: T_d; a class is too frequent if its z-score is above it, too rare if below -1 / T_d.
        augment: whether further samples of a rare class are new images; the samples must be images.
        shift: of a new image, the most in each direction, as a share of its width or height.
        rotation: of a new image, the most to each side, in degrees, up to 180.
        shear: of a new image, the most to each side, in degrees, below 90.
        zoom: the most by which width and height of a new image change, below 1.
    """

    above: float = 3.0
    augment: bool = False
    shift: float = 0.1
    rotation: float = 10.0
    shear: float = 10.0
    zoom: float = 0.1

    def __post_init__(self) -> None:
        check_above(self.above)
        self._augmentation  # noqa: B018 (it checks the amounts)

    @property
    def _augmentation(self) -> Augmentation:
        return Augmentation(*(getattr(self, one.name) for one in fields(Augmentation)))

    def check(self, logic: Parts) -> None:
        """Check that the selector asks the clients for their labels.

        Raises:
            LogicError: it does not.
        """
        if not any(question.name == LABELS for question in logic.selector.surveys()):
            raise LogicError(
                f"Rebalance needs the labels of all clients, and "
                f"{type(logic.selector).__name__} does not ask for them; use a selector that "
                "does, such as astraea"
            )

    def server(self) -> ServerSide:
        """Return the half that sends the ratios."""
        return _Sending(self.above)

    def client(self) -> ClientSide:
        """Return the half that adds and drops samples."""
        return _Taking(self._augmentation if self.augment else None)


class _Sending(ServerSide):
    def __init__(self, above: float) -> None:
        self._above = above
        self._ratios: np.ndarray | None = None

    def send(self, task: Task, context: Context) -> Task:
        if (self._taken(context) != 1).any():
            context.slot["ratios"] = self._taken(context)
        return task

    def most_samples(self, samples: int, context: Context) -> int:
        # A sample is taken floor(r) times or once more, and a client keeps one at least.
        most = math.ceil(float(self._taken(context).max(initial=1.0)))
        return max(samples * most, 1)

    def _taken(self, context: Context) -> np.ndarray:
        """Return the ratio of each class, float64 (classes,)."""
        if self._ratios is None:
            answers = context.answers.get(LABELS, {})
            classes = max((answer["histogram"].size for answer in answers.values()), default=0)  # type: ignore[union-attr]
            _, counts = reported_histograms(answers, classes)
            self._ratios = ratios(counts.sum(0), self._above)
        return self._ratios


class _Taking(ClientSide):
    def __init__(self, augmentation: Augmentation | None) -> None:
        self._augmentation = augmentation

    def samples(self, data: Data, context: Context) -> Data:
        sent = context.slot.get("ratios")
        if sent is None:
            return data
        if not isinstance(sent, np.ndarray) or sent.ndim != 1 or not np.isfinite(sent).all():
            raise Rejected("ratios that are not one finite number for each class")
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
        if self._augmentation is not None:
            check_images(x)
            again = np.flatnonzero(rows[1:] == rows[:-1]) + 1
            x[again] = self._augmentation.new_images(x[again], context.run_rng("augment"))
        return ArrayData(x, data.y[rows])
