"""The plan of a round: lanes of clients, chosen from a population."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from layers.logic.client_sizes import ClientSizes
from layers.logic.core.messages import Slot, Training
from layers.logic.errors import LogicError
from layers.logic.secrets import Secret


@dataclass(frozen=True)
class Population:
    """The clients that can be asked in this round.

    Attributes:
        samples: number of samples by client; a client without samples is never selected.
        answers: the clients' answers to the surveys and to this round's inquiries, by question,
            then by client.
        training: how the clients will train in this round.
        deadline_s: seconds that the round may take; None: no limit.
        over_select: factor by which more clients are asked than needed, 1 or more.
        in_flight: the clients that have a task: when a round begins, those that still work on an
            earlier one, which the plan of the last round kept.
        total: N, the number of clients of the experiment; None: of the clients with samples.
        seed: of the run, for draws that stay the same in all rounds.
        secret: the server's secret for the selection of this round, for a selector whose choice
            nobody may foresee.
    """

    samples: Mapping[int, int]
    answers: Mapping[str, Mapping[int, Slot]] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    deadline_s: float | None = None
    over_select: float = 1.0
    in_flight: tuple[int, ...] = ()
    total: int | None = None
    seed: int = 0
    secret: Secret = field(
        default_factory=lambda: Secret.elsewhere("the server"), repr=False, compare=False
    )

    @cached_property
    def sizes(self) -> ClientSizes:
        """The same numbers of samples, with what selectors derive from them kept."""
        return ClientSizes.of(self.samples)

    @property
    def clients(self) -> Sequence[int]:
        """The clients that have samples, in ascending order: a tuple, or a range of all."""
        return self.sizes.clients

    def has(self, client: int) -> bool:
        """Return whether a client can be asked and has samples."""
        return self.sizes.get(client, 0) > 0

    @property
    def number(self) -> int:
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


@dataclass(frozen=True)
class Plan:
    """The lanes of one round.

    A lane is an ordered list of clients. Each client starts from the weights that the one
    before it in the lane returned. FedAvg: K lanes of one client.

    Attributes:
        lanes: the lanes; no client occurs twice.
        offers: whether clients offer their update before they send it; only with lanes of one
            client, since the next one in a lane cannot begin before the verdict.
        enough: number of returned lanes that ends the round; None: all.
        groups: group of each lane, such as a stratum or a server of its own, for an aggregator that
            treats groups differently; empty: one group.
        quotas: by group, the number of returned lanes that closes it: its other clients are
            declined, and the round goes on with the other groups. A group without a quota closes
            with its last lane.
        weights: weight of each lane in the mean, for an aggregator that uses them; empty: none.
        in_turn: whether uploads that cannot overlap follow the order of the plan, each after those
            before it, instead of the order in which they are ready.
        late: clients in flight whose update of an earlier round is accepted in this one; they are
            folded after the lanes, in this order. All other tasks in flight are cancelled.
        keeps_in_flight: whether clients that have not returned when `enough` lanes have, or at the
            deadline, stay in flight, those of `late` included, so that the plan of the next round
            may accept their update.
        refills: whether the round sends further tasks while it collects (asynchronous rounds). All
            tasks in flight continue. The round calls `Selector.refill` at its start, and when
            clients have returned or were lost. It ends with the `enough`-th update.
        passes: how many times each lane is gone through: after its last client comes its first
            again, from the weights that the last one returned.
        before_s: virtual seconds that pass before the first task leaves, such as for the selection;
            real time passes by itself.
        after_s: virtual seconds that pass after the last update, such as for the aggregation; an
            update must have arrived so long before the deadline.

    Raises:
        LogicError: the plan contradicts itself.
    """

    lanes: tuple[tuple[int, ...], ...]
    offers: bool = False
    enough: int | None = None
    groups: tuple[str, ...] = ()
    quotas: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    in_turn: bool = False
    late: tuple[int, ...] = ()
    keeps_in_flight: bool = False
    refills: bool = False
    passes: int = 1
    before_s: float = 0.0
    after_s: float = 0.0

    def __post_init__(self) -> None:
        # As a selector gets them of numpy, they could not be kept in a checkpoint.
        object.__setattr__(self, "lanes", tuple(_numbers("a lane", lane) for lane in self.lanes))
        object.__setattr__(self, "late", _numbers("late", self.late))
        clients = (*self.clients, *self.late)
        if len(set(clients)) != len(clients):
            twice = sorted({client for client in clients if clients.count(client) > 1})
            raise LogicError(f"a plan names clients {twice} twice; a client has one place in it")
        if not all(self.lanes):
            raise LogicError("a plan has an empty lane; leave it out")
        if self.offers and any(len(lane) > 1 for lane in self.lanes):
            raise LogicError("a plan with offers has lanes of several clients; use single_lanes()")
        if self.offers and (self.late or self.keeps_in_flight):
            raise LogicError(
                "a plan with offers keeps stragglers or waits for late updates, whose offers are "
                "forgotten with their round; use a plan without offers"
            )
        if self.keeps_in_flight and any(len(lane) > 1 for lane in self.lanes):
            raise LogicError(
                "a plan that keeps stragglers has lanes of several clients, of which one that is "
                "behind holds up the others; use single_lanes()"
            )
        if self.refills and (not self.keeps_in_flight or self.enough is None or self.lanes):
            raise LogicError(
                "a plan with refills has lanes, no number of updates that ends the round, or drops "
                "stragglers; use Plan((), enough=K, keeps_in_flight=True, refills=True)"
            )
        if self.passes < 1:
            raise LogicError(f"passes={self.passes} of a lane; it must be 1 or more")
        if self.passes > 1 and (self.offers or self.in_turn or self.keeps_in_flight or self.late):
            raise LogicError(
                "a plan of several passes has offers, uploads in turn or stragglers, for which a "
                "client has one task in a round; use a plan without them"
            )
        if self.enough is not None and self.enough < 1:
            raise LogicError(f"enough={self.enough} lanes end no round; it must be 1 or more")
        wrong = {group: n for group, n in self.quotas.items() if group not in self.groups or n < 1}
        if wrong:
            raise LogicError(f"quotas={wrong}: each must be 1 or more, of a group in the plan")
        if self.quotas and self.keeps_in_flight:
            raise LogicError(
                "a plan with quotas keeps stragglers, and a group that closes declines them; leave "
                "one of them out"
            )
        for name, given_s in (("before_s", self.before_s), ("after_s", self.after_s)):
            if not 0 <= given_s < math.inf:
                raise LogicError(f"{name}={given_s} of a plan must be 0 s or more and finite")
        for name, given in (("groups", self.groups), ("weights", self.weights)):
            if given and len(given) != len(self.lanes):
                raise LogicError(f"a plan of {len(self.lanes)} lanes has {len(given)} {name}")

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """Every client of the plan, lane by lane."""
        return tuple(client for lane in self.lanes for client in lane)


def _numbers(what: str, clients: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, clients))
    except TypeError:
        raise LogicError(
            f"{what} of a plan must hold numbers of clients, not be {clients!r}, as in "
            "Plan(((0,), (1, 2))) or Plan(single_lanes([0, 1]))"
        ) from None


def single_lanes(clients: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return one lane for each client, in ascending order, so that a cohort has only one plan."""
    return tuple((client,) for client in sorted(clients))
