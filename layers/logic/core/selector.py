"""A selector says who takes part in a round; a pure function of memory, population and seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.parts import Parts
from layers.logic.core.plan import Plan, Population
from layers.logic.core.state import ServerState
from layers.logic.core.survey import Question

if TYPE_CHECKING:
    from layers.logic.core.report import RoundReport

SELECT = "selector"
"""The key of what a selector keeps in `ServerState.memory`."""

SURVEY = "survey"
"""The key of the answers to a selector's surveys in `ServerState.memory`: question, then client."""

Inquiry: TypeAlias = "tuple[Question, Sequence[int]]"
"""A question of one round, and the clients that are asked it."""


@dataclass(frozen=True)
class PendingOffers:
    """The offers of a round when one has come, a client was lost, or the timer has fired.

    Attributes:
        offers: those that have no verdict yet, in order of arrival; `at_s` says when that was.
        waiting: the clients that have neither offered nor been lost.
        now_s: seconds since the round began.
        population: that the round's plan was made from.
        memory: what the selector kept after the round before.
        simulated: whether the clients are simulated. Then a verdict can be dated back, and told
            times are true; deployed clients upload from when they hear of their grant.
        timer_fired: whether the moment that `Selector.wait_until` gave has come.
    """

    offers: Sequence[Offer]
    waiting: Collection[int]
    now_s: float = 0.0
    population: Population = field(default_factory=lambda: Population({}))
    memory: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = True
    timer_fired: bool = False


class Selector(ABC):
    """Who takes part; the settings are the attributes of a frozen dataclass.

    What it keeps from round to round is `memory`: named arrays, numbers, text, mappings of them.
    """

    received_loss: bool = False
    """Whether the clients must report the received model's loss (see `Training.loss`)."""

    rms_loss: bool = False
    """Whether clients must report the metric `rms_loss`, too (see `TrainReport.rms_loss`)."""

    serial_uploads: bool = False
    """Whether it reckons with one upload at a time, so that simulated uploads must be serial."""

    def check(self, logic: Parts) -> None:  # noqa: B027 (nothing to check, as a rule)
        """Check that this selector can work with the other parts; called before anything runs.

        Raises:
            LogicError: it cannot.
        """

    def surveys(self) -> tuple[Question, ...]:
        """Return what every client is asked once, before its first round."""
        return ()

    def on_survey(self, state: ServerState, population: Population, seed: int) -> ServerState:
        """Return the state after clients have answered the surveys.

        The answers are `state.memory[SURVEY]`; an answer of which a digest is kept can be replaced
        by an empty one. What the selector keeps goes to `state.memory[SELECT]`.

        Args:
            state: with the answers.
            population: the clients that are there.
            seed: of the run, for random draws (see `layers.logic.seeds.generator`).
        """
        return state

    def inquire(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Sequence[Inquiry]:
        """Return what some clients are asked in this round before anybody is selected.

        The answers are in the `population` that `select` gets, and are not kept.
        """
        return ()

    @abstractmethod
    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Return the lanes of round `round`."""

    def on_offers(self, pending: PendingOffers, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Answer offers, now or later.

        A verdict may decline a client that is still waited for. When nobody is waited for, what is
        still unanswered counts as declined.

        Args:
            pending: the offers, and what is known when one more has come, or a client was lost.
            so_far: what the call before in this round returned with its verdicts; None at first.
        """
        return [Verdict(offer.round, offer.client, granted=True) for offer in pending.offers], None

    def wait_until(self, pending: PendingOffers, so_far: Any) -> float | None:
        """Return until when offers without a verdict can wait, though nothing else comes.

        At that moment `on_offers` is called with `timer_fired`. This is asked after each event
        while there are such offers and other clients may still offer.

        Args:
            pending: the offers, and what is known now.
            so_far: what the last call of `on_offers` in this round returned.

        Returns:
            Seconds since the round began; None: until something comes, or the round ends.
        """
        return None

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Return the memory after a round."""
        return memory
