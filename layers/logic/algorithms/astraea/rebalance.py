"""Clients train on more samples of the rare classes and fewer of the frequent ones (Astraea)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layers.logic.algorithms.astraea.ratios import ratios
from layers.logic.algorithms.astraea.selector import check_above
from layers.logic.algorithms.mediators.histograms import reported_histograms
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientHalf, Context, Hook, ServerHalf
from layers.logic.core.messages import Task
from layers.logic.errors import LogicError, Rejected
from layers.logic.seeds import generator

if TYPE_CHECKING:
    from layers.logic.round.logic import Logic

LABELS = "labels"


@dataclass(frozen=True)
class Rebalance(Hook):
    """The server tells each class's ratio, and clients take their samples so many times.

    Duan et al. 2019 (Astraea), algorithm 2: z-scores of the numbers of samples of each class over
    all clients say which classes are far too rare or too frequent, and by what ratio (see
    `ratios`). A sample of a class with ratio r is taken floor(r) times, and once more with
    probability r - floor(r): the same ones in every round. The paper augments images instead of
    repeating them. n_k counts what is trained on.

    Needs a selector that asks for the labels. Down goes one float64 for each class.

    Attributes:
        above: T_d; a class is too frequent if its z-score is above it, too rare if below -1 / T_d.
    """

    above: float = 3.0

    def __post_init__(self) -> None:
        check_above(self.above)

    def check(self, logic: Logic) -> None:
        """Refuse a selector that does not know the labels."""
        if not any(question.name == LABELS for question in logic.selector.surveys()):
            raise LogicError(
                f"Rebalance goes by the labels that all clients have, and "
                f"{type(logic.selector).__name__} does not ask for them; use a selector that "
                "does, such as astraea"
            )

    def server(self) -> ServerHalf:
        """Return the half that tells the ratios."""
        return _Telling(self.above)

    def client(self) -> ClientHalf:
        """Return the half that takes samples more often, or not at all."""
        return _Taking()


class _Telling(ServerHalf):
    def __init__(self, above: float) -> None:
        self._above = above
        self._ratios: np.ndarray | None = None

    def send(self, task: Task, context: Context) -> Task:
        if self._ratios is None:
            answers = context.answers.get(LABELS, {})
            classes = max((told["histogram"].size for told in answers.values()), default=0)  # type: ignore[union-attr]
            _, counts = reported_histograms(answers, classes)
            self._ratios = ratios(counts.sum(0), self._above)
        if (self._ratios != 1).any():
            context.slot["ratios"] = self._ratios
        return task


class _Taking(ClientHalf):
    def samples(self, data: Data, context: Context) -> Data:
        told = context.slot.get("ratios")
        if told is None:
            return data
        if not isinstance(told, np.ndarray) or told.ndim != 1 or not np.isfinite(told).all():
            raise Rejected("ratios that are not a number for each class")
        if data.y.max(initial=-1) >= told.size:
            raise Rejected(f"ratios of {told.size} classes, and here is label {data.y.max()}")
        ratio = told[data.y]
        chance = generator(0, "rebalance", context.client or 0).random(len(data))
        times = np.floor(ratio).astype(np.int64) + (chance < ratio - np.floor(ratio))
        if not times.any():
            times[np.argmax(ratio)] = 1  # a client has something to train on
        rows = np.repeat(np.arange(len(data)), times)
        return ArrayData(data.x[rows], data.y[rows])
