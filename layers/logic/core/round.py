"""A round as its algorithm sees it: what it knows, and the few words by which it says what happens.

An algorithm is a generator, `Selector.run(round)`. It says who trains, and waits::

    for client in draw(round.clients):
        round.train(client)
    yield from round.until(accepted=10)
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from layers.logic.client_sizes import ClientSizes
from layers.logic.core.messages import EMPTY, Offer, Slot, Training, Verdict
from layers.logic.core.report import ClientReport
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError
from layers.logic.secrets import Secret
from layers.logic.seeds import generator

Returned = TypeVar("Returned")
Run: TypeAlias = Generator["Wait", Any, Returned]
"""A generator that waits, as `Selector.run` and the waiting methods of a round are."""


class PlannedLane(NamedTuple):
    """A lane: clients that train one after the other, each from the weights of the one before.

    Attributes:
        clients: the clients, in order.
        group: the group of the lane, such as a stratum, or one with a model of its own.
        weight: its weight in the mean, for an aggregator that uses it; None: it has none.
        passes: how many times the lane is gone through: after its last client comes its first
            again, from the weights that the last one returned.
        offer: whether its client offers its update, and sends it only if that is granted.
    """

    clients: tuple[int, ...]
    group: str = ""
    weight: float | None = None
    passes: int = 1
    offer: bool = False


@dataclass(frozen=True)
class Answers:
    """Waits for the answers of clients to a question.

    Attributes:
        question: the question.
        clients: the clients that are asked.
        once: whether their answers are kept, so that nobody is asked twice.
    """

    question: Question
    clients: tuple[int, ...]
    once: bool = False
    awaited: ClassVar = ""


@dataclass(frozen=True)
class Next:
    """Waits for the next event of the tasks, at most until `until_s`.

    Attributes:
        until_s: seconds since the round began; None: as long as it takes.
        awaited: what the round waits for, as `fedmx status` says it.
        may_end: whether it is no mistake if nothing can come.
    """

    until_s: float | None = None
    awaited: str = ""
    may_end: bool = False


@dataclass(frozen=True)
class Changed:
    """Waits until clients have returned or were lost, and all of that moment is known.

    Attributes:
        accepted: the number of lanes whose return ends the wait at once.
    """

    accepted: int

    @property
    def awaited(self) -> str:
        """What the round waits for, as `fedmx status` says it."""
        return f"{self.accepted} updates"


Wait: TypeAlias = "Answers | Next | Changed"


class OpenRound:
    """What an algorithm knows of a round, and says in it.

    Attributes:
        number: number of the round, from 1.
        sizes: the clients that can be asked, with their numbers of samples.
        memory: the selector's memory; a change by `run` is kept.
        survey: the answers to questions that are asked once, by question, then by client; `run` may
            replace an answer by a digest of it, such as an empty one.
        weights: float32 (d,), the global model; a selector may replace it before the first task.
        buffers: float32 (b,), its non-trainable state.
        models: the models of groups that have one of their own, each as weights (d,) and buffers
            (b,), by group; a selector may add one before the first task.
        training: how the clients will train in this round.
        deadline_s: seconds that the round may take; None: no limit.
        over_select: factor by which more clients are asked than needed, 1 or more.
        total: N, the number of clients of the experiment; None: of the clients with samples.
        seed: of the run, for draws that stay the same in all rounds.
        secret: the server's secret for the selection of this round, for a choice that nobody may
            foresee.
        simulated: whether the clients are simulated. Then a verdict can be dated back, and reported
            times are true; deployed clients begin to upload when they receive their grant.
        before_s: virtual seconds that pass before the first task leaves, such as for the selection;
            real time passes by itself.
        after_s: virtual seconds that pass after the last update, such as for the aggregation; an
            update must have arrived so long before the deadline.
        in_turn: whether uploads that cannot overlap follow the order of the `train` calls, each
            after those before it, instead of the order in which they are ready.
        now_s: seconds since the round began.
        in_flight: the clients that have a task, those of earlier rounds included.
        returned: by group, the number of lanes that returned an update.
        offers: the offers without a verdict, by client, in order of arrival (see `Offer.at_s`).
        offers_due: the clients that have a task and have neither offered nor been lost.
        planned: the lanes that begin at the next wait.
        answer: takes verdicts; `nothing` outside of a machine, as `close`.
        close: declines who is left of a group, or of all groups.
    """

    def __init__(
        self,
        samples: Mapping[int, int],
        *,
        number: int = 1,
        memory: Mapping[str, Any] | None = None,
        survey: Mapping[str, Mapping[int, Slot]] | None = None,
        weights: np.ndarray = EMPTY,
        buffers: np.ndarray = EMPTY,
        models: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
        training: Training | None = None,
        deadline_s: float | None = None,
        over_select: float = 1.0,
        total: int | None = None,
        seed: int = 0,
        secret: Secret | None = None,
        simulated: bool = True,
        in_flight: Collection[int] = (),
    ) -> None:
        self.number = number
        self.sizes = ClientSizes.of(samples)
        self.memory = dict(memory or {})
        self.survey = {name: dict(given) for name, given in (survey or {}).items()}
        self.weights = weights
        self.buffers = buffers
        self.models = dict(models or {})
        self.training = training or Training()
        self.deadline_s = deadline_s
        self.over_select = over_select
        self.total = total
        self.seed = seed
        self.secret = secret or Secret.elsewhere("the server")
        self.simulated = simulated
        self.before_s = self.after_s = self.now_s = 0.0
        self.in_turn = False
        self.in_flight = in_flight
        self.returned: Counter[str] = Counter()
        self.offers: dict[int, Offer] = {}
        self.offers_due: dict[int, None] = {}
        self.planned: list[PlannedLane] = []
        self.answer: Callable[[Verdict], None] = nothing
        self.close: Callable[[str | None], None] = nothing
        self._task = number  # the number of the next tasks, by which draws are seeded
        self._rng: np.random.Generator | None = None

    # --- what it knows ----------------------------------------------------------------------

    @property
    def clients(self) -> Sequence[int]:
        """The clients that can be asked and have samples, ascending: a tuple, or a range of all."""
        return self.sizes.clients

    def has(self, client: int) -> bool:
        """Return whether a client can be asked and has samples."""
        return self.sizes.get(client, 0) > 0

    @property
    def all_clients(self) -> int:
        """N, the number of all clients, available or not."""
        return len(self.clients) if self.total is None else self.total

    def asked(self, needed: int, among: int | None = None) -> int:
        """Return how many clients to ask, so that the first `needed` updates can be accepted.

        Args:
            needed: number of updates that are needed.
            among: number of clients to choose from; None: all.
        """
        # Slightly less, since 10 * 1.3 may be rounded to more than 13.
        asked = -int(-(needed * self.over_select - 1e-9) // 1)
        return min(max(asked, needed), len(self.clients) if among is None else among)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the draws for the next tasks."""
        if self._rng is None:
            self._rng = generator(self.seed, "select", self._task)
        return self._rng

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a new generator for another purpose in this round, such as candidates."""
        return generator(self.seed, purpose, self.number)

    @property
    def outstanding(self) -> Collection[int]:
        """The clients that have a task, or get one at the next wait."""
        if not self.planned:
            return self.in_flight
        return [*self.in_flight, *(one for lane in self.planned for one in lane.clients)]

    @property
    def accepted(self) -> int:
        """The number of lanes that returned an update; of `train` calls, that of updates."""
        return self.returned.total()

    # --- what it says -----------------------------------------------------------------------

    def train(
        self, client: int, *, group: str = "", weight: float | None = None, offer: bool = False
    ) -> None:
        """Let a client train from the model of its group.

        Tasks leave at the next wait. Updates are folded in the order of these calls.

        Args:
            client: number of the client; it has one place in a round.
            group: see `PlannedLane`, as of `weight` and `offer`.
            weight: its weight in the mean.
            offer: whether it offers its update first.
        """
        self.planned.append(PlannedLane((_number(client),), group, weight, 1, offer))

    def train_lane(
        self,
        clients: Iterable[int],
        *,
        group: str = "",
        weight: float | None = None,
        passes: int = 1,
    ) -> None:
        """Let clients train one after the other; see `PlannedLane`.

        Raises:
            LogicError: there is no client, or no pass.
        """
        if not isinstance(clients, Iterable):
            raise LogicError(f"a lane is a list of clients, not {clients!r}")
        line = tuple(map(_number, clients))
        if not line or passes < 1:
            raise LogicError(f"a lane of clients {line} in {passes} passes; it needs one of each")
        self.planned.append(PlannedLane(line, group, weight, passes))

    def ask(
        self, question: Question, clients: Iterable[int] | None = None, *, once: bool = False
    ) -> Run[Mapping[int, Slot]]:
        """Ask clients; return the answers by client, ascending.

        An answer counts if its client is still there; with `once`, each answer counts.

        Args:
            question: the question.
            clients: the clients; None: all.
            once: whether to ask only those that have not answered in an earlier round; all answers
                are then kept in `survey`. The question must be one of `Selector.asks`.
        """
        kept = self.survey.setdefault(question.name, {}) if once else {}
        asked = filterfalse(kept.__contains__, self.clients if clients is None else clients)
        answers: Mapping[int, Slot] = yield Answers(question, tuple(asked), once)
        kept.update(answers)
        return answers

    def next(self, until_s: float | None = None) -> Run[Offer | ClientReport | None]:
        """Wait for the next offer, or the end of a client's part; None: until `until_s` came none.

        Args:
            until_s: seconds since the round began.
        """
        event: Offer | ClientReport | None = yield Next(until_s)
        return event

    def until(self, accepted: int | Mapping[str, int]) -> Run[None]:
        """Wait until enough lanes have returned, or none can; decline the clients of the others.

        Args:
            accepted: the number of lanes; or by group, the number that closes this group. A group
                without a number closes with its last lane.

        Raises:
            LogicError: a number is below 1, or no client trains in a group.
        """
        if not isinstance(accepted, Mapping):
            _check_numbers([accepted])
            while self.outstanding and self.accepted < accepted:
                yield Next(awaited=f"{accepted} updates", may_end=True)
            self.close(None)
            return
        _check_numbers(accepted.values())
        open, groups = dict(accepted), {lane.group for lane in self.planned}
        if groups and (unknown := sorted(open.keys() - groups)):
            raise LogicError(f"until waits for the groups {unknown}, in which no client trains")
        awaited = f"{sum(open.values())} updates of {len(open)} groups"
        while self.outstanding:
            yield Next(awaited=awaited, may_end=True)
            for group in [one for one, needed in open.items() if self.returned[one] >= needed]:
                del open[group]
                self.close(group)

    def until_all(self) -> Run[None]:
        """Wait until every lane has returned or was lost."""
        while self.outstanding:
            yield Next(awaited="all updates", may_end=True)

    def until_changed(self, accepted: int) -> Run[bool]:
        """Wait until clients have returned, were lost or have joined; return whether to go on.

        It is for asynchronous rounds. It returns once for all of one virtual moment, and first when
        the round begins. When so many lanes have returned, it returns False at once.

        Args:
            accepted: the number of lanes that ends the round.
        """
        more: bool = yield Changed(accepted)
        return more

    def grant(self, offer: Offer, dated_s: float | None = None) -> None:
        """Let a client send the update that it offered.

        Args:
            offer: its offer.
            dated_s: see `Verdict.dated_s`.
        """
        self.answer(Verdict(offer.round, offer.client, granted=True, dated_s=dated_s))

    def decline(self, client: int | Offer, dated_s: float | None = None) -> None:
        """End a client's part, whether it has offered or not.

        Args:
            client: its number, or its offer.
            dated_s: see `Verdict.dated_s`.
        """
        number = client.client if isinstance(client, Offer) else client
        self.answer(Verdict(0, number, granted=False, dated_s=dated_s))

    def next_tasks(self, number: int) -> None:
        """Draw for the tasks of this number from now on."""
        self._task, self._rng = number, None


def nothing(given: object) -> None:
    """Do nothing."""


def _check_numbers(needed: Iterable[int]) -> None:
    if (least := min(needed, default=1)) < 1:
        raise LogicError(f"until({least}) waits for nothing; a round needs 1 update or more")


def _number(client: int) -> int:
    """Return a plain number: one of numpy could not be kept in a checkpoint."""
    try:
        return operator.index(client)
    except TypeError:
        raise LogicError(
            f"a round trains numbers of clients, not {client!r}, as in round.train(0) or "
            "round.train_lane([1, 2])"
        ) from None
