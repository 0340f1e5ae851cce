"""The selector: the algorithm of a round. It says who trains, when, and what counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from layers.logic.core.declaration import Part
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError

if TYPE_CHECKING:
    from layers.logic.core.report import RoundReport


SELECT = "selector"
"""The key of a selector's memory in `ServerState.memory`."""

LABELS = "labels"
"""The name of the question for the histogram of a client's labels."""

SURVEY = "survey"
"""The key of the answers to surveys in `ServerState.memory`, by question, then by client."""


class Selector(Part):
    """Runs a round; its settings are the attributes of a frozen dataclass.

    It has a method `run`, or only `select`. From round to round it keeps `OpenRound.memory`: named
    arrays, numbers, text, and mappings of them.
    """

    most_clients: int | None = None
    """The most clients of an experiment that it works with; None: any number."""

    why_limited: str = ""
    """What it does with all clients, for which more would be too many; ends a sentence."""

    @property
    def fewest_clients(self) -> int:
        """The fewest clients of an experiment that its settings are for; `count`, if it has one."""
        return getattr(self, "count", None) or 1

    @property
    def tasks_per_round(self) -> int:
        """The most tasks of one client in a round; more than 1 with passes, or asynchronous rounds.

        A client answers no more tasks than that in all rounds, and private runs count as many
        releases.
        """
        return 1

    @property
    def asks(self) -> tuple[Question, ...]:
        """The questions that it asks every client once (see `OpenRound.ask`)."""
        return ()

    def check_data(self, classes: int, partition: object) -> None:
        """Check that the questions are about the data's labels.

        With too few, no client could answer; with too many, every client would look biased.
        """
        for question in self.asks:
            if question.classes and question.classes != classes:
                raise LogicError(
                    f"the selector expects {question.classes} labels, but the data have {classes}; "
                    f"set classes to {classes}"
                )

    def run(self, round: OpenRound) -> Run[None]:
        """Run a round: say who trains, and wait for their updates.

        When it ends, clients that still have a task are declined; in asynchronous rounds they go
        on. At the deadline of the round it is closed where it waits.

        By default the clients of `select` train, each from the global model, and all of them count.
        """
        for client in _selected(self, round):
            round.train(client)
        yield from round.until_all()

    def select(self, round: OpenRound) -> Iterable[int]:
        """Return the clients of a round; for a selector that is a draw and no more."""
        raise NotImplementedError

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Return the selector's memory after a round."""
        return memory


def _selected(selector: Selector, round: OpenRound) -> list[int]:
    """Return the clients in ascending order, so that a cohort has one order."""
    clients: Any = selector.select(round)
    if not isinstance(clients, Iterable):
        raise LogicError(
            f"it returned a {type(clients).__name__}; it must return numbers of clients, as [0, 1]"
        )
    return sorted(clients)


def column(memory: Mapping[str, Any], name: str, clients: np.ndarray, unknown: float) -> np.ndarray:
    """Return the number called `name` of each of `clients`, float64 (k,); `unknown` without one.

    Args:
        memory: of a selector.
        name: the name that was given to `with_numbers`.
        clients: int64 (k,).
        unknown: the value for a client without a number.
    """
    kept = memory.get(name)
    if not kept:
        return np.full(clients.size, unknown)
    known, numbers = kept["clients"], kept["numbers"]
    place = np.minimum(np.searchsorted(known, clients), known.size - 1)
    return np.where(known[place] == clients, numbers[place], unknown)


def with_numbers(
    memory: Mapping[str, Any], name: str, numbers: Mapping[int, float]
) -> dict[str, Any]:
    """Return the memory in which the numbers called `name` of these clients are new."""
    if not numbers:
        return dict(memory)
    kept = memory.get(name) or {"clients": np.zeros(0, np.int64), "numbers": np.zeros(0)}
    new = np.fromiter(numbers.keys(), np.int64, len(numbers))
    values = np.fromiter(numbers.values(), np.float64, len(numbers))
    old = ~np.isin(kept["clients"], new)
    clients = np.concatenate([kept["clients"][old], new])
    order = np.argsort(clients)
    both = np.concatenate([kept["numbers"][old], values])[order]
    return {**memory, name: {"clients": clients[order], "numbers": both}}
