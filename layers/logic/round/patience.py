"""Patience: how long a round waits for one client, and how long it then does without it.

All times are seconds by the clock of the carrier. They count from one round to the next, and do not
run between rounds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layers.logic.core.state import ServerState
from layers.logic.round.exchange import ClientLost

PATIENCE = "patience"
"""The key in `ServerState.memory` of answer times, offences and suspensions."""

ANSWERS = 1000  # the newest answers, whose median counts
LEAST_S = 60.0  # the least limit that is derived from a median
QUORUM = 1 / 3  # the share of the tasks of a round
QUORUM_LEAST_S = 10.0  # the least limit when this share of the updates has arrived
FIRST_S = 3600.0  # the limit before the first answer of a run
OFFENDED = 0.5  # of `Patience.times`, for a client with an offence

SUSPENDED_TIMES = 8.0  # a suspension is this many times longer than the round has waited
MOST_SUSPENDED_S = 3600.0
MOST_DOUBLINGS = 32  # of a suspension
FAILURES = 2  # in a row, from which on each is an offence
FAILED_S = 1.0  # the least that a failure counts as waiting: it can come at once


class AnswerTimes:
    """The answer times in seconds of the newest `ANSWERS` answers, and their median."""

    def __init__(self, took_s: Iterable[float] = ()) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []
        for one in took_s:
            self.append(float(one))

    def append(self, took_s: float) -> None:
        """Add the seconds of one more answer."""
        if len(self._newest) == ANSWERS:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]
        self._newest.append(took_s)
        insort(self._sorted, took_s)

    @property
    def median(self) -> float | None:
        """The median in seconds; None: there is no answer yet."""
        middle = len(self._sorted) // 2
        if len(self._sorted) % 2:
            return self._sorted[middle]
        return (self._sorted[middle - 1] + self._sorted[middle]) / 2 if middle else None

    def newest(self) -> np.ndarray:
        """Return float64 (n,): the seconds of the newest answers, in order."""
        return np.array(self._newest, np.float64)


@dataclass(frozen=True)
class Patience:
    """The limit for a client that does not answer.

    The limit is `times` the median of the seconds that answers took, at least `LEAST_S`. A minority
    of slow clients does not move a median. The least limit is `QUORUM_LEAST_S` in a round that has
    a quorum: it has `min_updates` updates, and those of a share of `QUORUM` of its tasks. Before
    the first answer of a run the limit is `FIRST_S`. A client with an offence (see `Waiting`) has
    the part `OFFENDED` of `times`.

    Attributes:
        times: the factor; None: there is no limit.
        limit_s: seconds in place of that limit.
    """

    times: float | None = None
    limit_s: float | None = None

    def after(
        self,
        answers: AnswerTimes,
        quorum: bool = False,
        deadline_s: float = 0.0,
        offended: bool = False,
    ) -> float:
        """Return the limit in seconds after these answers; infinite if there is none.

        A derived limit is longer than the deadline of the round, which ends by itself.
        """
        if self.limit_s is not None:
            return self.limit_s
        if self.times is None:
            return math.inf
        if answers.median is None:
            return deadline_s + FIRST_S
        least_s = QUORUM_LEAST_S if quorum else LEAST_S
        times = self.times * (OFFENDED if offended else 1.0)
        return max(deadline_s + least_s, times * answers.median)

    def record(self) -> dict[str, float]:
        """Return it as a record of the journal has it."""
        return {name: one for name, one in asdict(self).items() if one is not None}


def silence(waited_s: float, suspended_s: float) -> str:
    """Return why a client is given up."""
    reason = f"connected, but no answer within {waited_s:.3g} s"
    return f"{reason}; it is suspended for {suspended_s:.3g} s" if suspended_s else reason


class Waiting:
    """Whose turn it is since when, in one round; all times are seconds since the round began.

    A client commits an offence when it makes the round wait for nothing: it is silent until the
    limit, or is lost, or fails for the second time in a row or more. Each of its updates takes one
    offence back. With an offence it has a shorter
    limit (`OFFENDED`). From the second offence on, the client is suspended for `SUSPENDED_TIMES` as
    long as the round has waited, twice that for the third, and so on up to `MOST_SUSPENDED_S`. So a
    client can hold up a small share of the time of a run, however often it comes back.

    Args:
        patience: the limit; None: every client may take any time.
        state: the state before the round.
        deadline_s: seconds after which the round ends; 0: it has no deadline.

    Attributes:
        patience: as given.
        limit_s: the present limit for a task of a client without an offence; infinite without one.
    """

    def __init__(
        self, patience: Patience | None, state: ServerState, deadline_s: float = 0.0
    ) -> None:
        memory = {} if patience is None else state.memory.get(PATIENCE, {})
        self.patience = patience or Patience()
        self._answers = AnswerTimes(memory.get("took_s", ()))
        self._waited: Mapping[int, float] = memory.get("waited_s", {})  # of tasks in flight
        self._offences: dict[int, int] = dict(memory.get("offences", {}))
        self._failures: dict[int, int] = dict(memory.get("failures", {}))  # in a row
        self._suspended: dict[int, float] = dict(memory.get("suspended_s", {}))  # from 0 on
        self._since: dict[int, float] = {}  # the longest-waiting first
        self._asked: set[int] = set()
        self._answered: set[int] = set()
        self._need = math.inf  # answers for a quorum, besides the share
        self._deadline_s = deadline_s
        self._set_limits(quorum=False)

    def _set_limits(self, quorum: bool) -> None:
        self.limit_s, self._offended_s = (
            self.patience.after(self._answers, quorum, self._deadline_s, offended)
            for offended in (False, True)
        )

    def limit_of(self, client: int) -> float:
        """Return the present limit for a task of a client, in seconds."""
        return self._offended_s if client in self._offences else self.limit_s

    def begin(self, now_s: float, in_flight: Iterable[int], min_updates: int | None) -> None:
        """Begin to collect: this moment is 0 from now on.

        Args:
            now_s: this moment, since the round was opened.
            in_flight: the clients that owe an update since an earlier round.
            min_updates: the updates that the round needs; None: it does not wait for all tasks.
        """
        self._suspended = {one: until_s - now_s for one, until_s in self._suspended.items()}
        self._need = math.inf if min_updates is None else min_updates
        waited = {one: self._waited.get(one, 0.0) for one in in_flight}
        for client in sorted(waited, key=lambda one: -waited[one]):
            self._since[client] = -waited[client]

    def ask(self, client: int, now_s: float) -> None:
        """Record that it is a client's turn from now on."""
        self._asked.add(client)
        self._since.pop(client, None)
        self._since[client] = now_s

    def pause(self, client: int) -> None:
        """Record that it is the server's turn, or that the client has no task any more."""
        self._since.pop(client, None)

    def answered(self, client: int, now_s: float) -> None:
        """Record that a client has sent its update."""
        since = self._since.pop(client, None)
        if since is None:
            return
        self._answers.append(now_s - since)
        self._answered.add(client)
        self._failures.pop(client, None)
        if (offences := self._offences.pop(client, 0) - 1) > 0:
            self._offences[client] = offences
        enough = max(self._need, QUORUM * len(self._asked))
        self._set_limits(quorum=len(self._answered) >= enough)

    def lost(self, lost: ClientLost, now_s: float, since_s: float | None = None) -> float:
        """Record that no message of a client will come: an offence of it, or a failure.

        Returns:
            The seconds for which the client is suspended from now on.

        Args:
            lost: says why.
            now_s: this moment.
            since_s: since when the round has waited; None: since it is the client's turn.
        """
        suspended_s = 0.0
        if lost.is_silence:
            suspended_s = self.offend(lost.client, now_s, since_s)
        elif not lost.ordered:
            failures = self._failures[lost.client] = self._failures.get(lost.client, 0) + 1
            if failures >= FAILURES:
                suspended_s = self.offend(lost.client, now_s, since_s, FAILED_S)
        self.pause(lost.client)
        return suspended_s

    def offend(
        self, client: int, now_s: float, since_s: float | None = None, least_s: float = 0.0
    ) -> float:
        """Record an offence, for which the round has waited `least_s` or more; see `lost`."""
        since = self._since.pop(client, now_s) if since_s is None else since_s
        if self.patience == Patience():
            return 0.0
        offences = self._offences[client] = self._offences.get(client, 0) + 1
        if offences < 2:
            return 0.0
        longer = 2.0 ** min(offences - 2, MOST_DOUBLINGS)
        waited_s = max(now_s - since, least_s)
        suspended_s = min(SUSPENDED_TIMES * waited_s * longer, MOST_SUSPENDED_S)
        self._suspended[client] = now_s + suspended_s
        return suspended_s

    def suspended(self, now_s: float) -> set[int]:
        """Return the clients that are suspended at a moment."""
        return {client for client, until_s in self._suspended.items() if until_s > now_s}

    def next_s(self) -> float | None:
        """Return the moment at which the first client is given up; None: there is none."""
        if self.limit_s == math.inf or not self._since:
            return None
        # The limits differ for clients with an offence, so each group has its own earliest moment.
        offended = (self._since[one] for one in self._offences if one in self._since)
        others = (since for one, since in self._since.items() if one not in self._offences)
        return min(
            min(offended, default=math.inf) + self._offended_s,
            next(others, math.inf) + self.limit_s,
        )

    def spent(self, now_s: float) -> list[int]:
        """Return the clients whose turn it has been for as long as the limit."""
        return [one for one, since in self._since.items() if now_s - since >= self.limit_of(one)]

    def memory(self, in_flight: Iterable[int], now_s: float) -> dict[str, Any]:
        """Return the memory after the round, for `ServerState.memory`."""
        if self.patience == Patience():
            return {}
        newest = self._answers.newest()
        waited = {one: now_s - self._since[one] for one in in_flight if one in self._since}
        suspended = {one: self._suspended[one] - now_s for one in self.suspended(now_s)}
        return {
            **({"took_s": newest} if newest.size else {}),
            **({"waited_s": waited} if waited else {}),
            **({"offences": dict(self._offences)} if self._offences else {}),
            **({"failures": dict(self._failures)} if self._failures else {}),
            **({"suspended_s": suspended} if suspended else {}),
        }
