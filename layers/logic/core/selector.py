"""The selector: it chooses a round's clients, as a function of memory, population and seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from layers.logic.core.declaration import Part
from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.plan import Plan, Population
from layers.logic.core.state import ServerState
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

Inquiry: TypeAlias = "tuple[Question, Sequence[int]]"
"""A question in one round, and the clients that are asked."""


@dataclass(frozen=True)
class SelectorContext:
    """The information that a selector has when it chooses clients.

    Attributes:
        population: the clients that can be asked.
        memory: the selector's memory.
        round: number of the round, from 1.
        rng: the generator for random draws.
    """

    population: Population
    memory: Mapping[str, Any]
    round: int
    rng: np.random.Generator

    @property
    def clients(self) -> Sequence[int]:
        """The clients that can be asked, in ascending order: a tuple, or a range of all."""
        return self.population.clients

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The clients that have a task."""
        return self.population.in_flight


@dataclass(frozen=True)
class PendingOffers:
    """The open offers of a round, when one has arrived, a client was lost, or the timer has fired.

    Attributes:
        offers: the offers without a verdict, in order of arrival (see `Offer.at_s`).
        waiting: the clients that have neither offered nor been lost.
        now_s: seconds since the round began.
        population: the population from which the plan of the round was made.
        memory: the selector's memory after the round before.
        simulated: whether the clients are simulated. Then a verdict can be dated back, and reported
            times are true; deployed clients begin to upload when they receive their grant.
        timer_fired: whether the moment that `Selector.wait_until` returned has come.
    """

    offers: Sequence[Offer]
    waiting: Collection[int]
    now_s: float = 0.0
    population: Population = field(default_factory=lambda: Population({}))
    memory: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = True
    timer_fired: bool = False


class Selector(Part, ABC):
    """Chooses the clients of a round; its settings are the attributes of a frozen dataclass.

    From round to round it keeps `memory`: named arrays, numbers, text, and mappings of them.
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

    def check_data(self, classes: int, partition: object) -> None:
        """Check that the questions are about the data's labels.

        With too few, no client could answer; with too many, every client would look biased.
        """
        for question in self.surveys():
            if question.classes and question.classes != classes:
                raise LogicError(
                    f"the selector expects {question.classes} labels, but the data have {classes}; "
                    f"set classes to {classes}"
                )

    def surveys(self) -> tuple[Question, ...]:
        """Return the questions that every client is asked once, before its first round."""
        return ()

    def on_survey(self, state: ServerState, population: Population, seed: int) -> ServerState:
        """Return the state after clients have answered the surveys.

        The answers are `state.memory[SURVEY]`; a selector that keeps a digest of an answer can
        replace the answer by an empty one. The selector's own memory is `state.memory[SELECT]`.

        Args:
            state: the state, with the answers.
            population: the available clients.
            seed: seed of the run, for random draws (see `layers.logic.seeds.generator`).
        """
        return state

    def inquire(self, context: SelectorContext) -> Sequence[Inquiry]:
        """Return the questions of this round, with the clients to ask, before the selection.

        `select` gets the answers in `context.population`; they are not kept.
        """
        return ()

    @abstractmethod
    def select(self, context: SelectorContext) -> Plan:
        """Return the plan of a round."""

    def on_offers(self, pending: PendingOffers, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Return verdicts on offers, and a value for the next call.

        A verdict may decline a client that has not offered yet. When every client has offered or
        was lost, the offers without a verdict are declined.

        Args:
            pending: the open offers, and what is known now.
            so_far: the value that the last call in this round returned; None at first.
        """
        return [Verdict(offer.round, offer.client, granted=True) for offer in pending.offers], None

    def wait_until(self, pending: PendingOffers, so_far: Any) -> float | None:
        """Return until when offers without a verdict can wait if no other event comes.

        At that moment `on_offers` is called with `timer_fired`. This method is called after each
        event while there are such offers and other clients may still offer.

        Args:
            pending: the open offers, and what is known now.
            so_far: the value that the last call of `on_offers` in this round returned.

        Returns:
            Seconds since the round began; None: until the next event or the end of the round.
        """
        return None

    def refill(self, context: SelectorContext) -> Sequence[int]:
        """Return the clients that get a task now, in a round whose plan has `refills`.

        They are none of those that have a task, `context.in_flight`; with no clients,
        nobody is asked now.

        It is called when the round begins, and after clients have returned or were lost: once for
        all clients that did so at the same virtual time.
        """
        return ()

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Return the selector's memory after a round."""
        return memory


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
