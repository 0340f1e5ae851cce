"""The clients of a round of which only one's part is wanted."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from fedmx.course.observed_peers import ObservedPeers
from fedmx.replay.part_watcher import PartWatcher
from fedmx.run import RunError
from fedmx.server.clients import Clients
from layers.logic import Plan, Task
from layers.logic.core.messages import Event


class NoPart(RunError):
    """The wanted client has no part in the round."""


class PartOver(Exception):
    """The wanted client's part is over, and with it the round as far as it is run."""


class OnePart(ObservedPeers):
    """Passes tasks on to one client and to those before it in its lane, and ends the round then.

    Where others decide what it is told, since all make offers or wait for one another, everybody
    works.

    Args:
        peers: the clients.
        client: the client whose part is wanted.
        watcher: watches this part.
    """

    def __init__(self, peers: Clients, client: int, watcher: PartWatcher) -> None:
        super().__init__(peers)
        self._virtual = peers.clock.virtual
        self._client = client
        self._watcher = watcher
        self._passes = 1
        self._working: frozenset[int] | None = None  # the clients that work; None: all

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round.

        Raises:
            NoPart: the client has no part in it.
        """
        if self._client not in (*plan.clients, *plan.late):
            clients = ", ".join(map(str, sorted((*plan.clients, *plan.late))))
            raise NoPart(
                f"client {self._client} has no part in round {round}; its clients are {clients}"
            )
        self._passes = plan.passes
        if not (self.foreign or plan.offers or plan.in_turn or plan.late):
            (lane,) = (one for one in plan.lanes if self._client in one)
            if not self._virtual or lane[0] == self._client:  # else time may end it before its turn
                before = lane if plan.passes > 1 else lane[: lane.index(self._client) + 1]
                self._working = frozenset(before)
        super().begin(round, plan, outstanding, deadline_s)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send the tasks of those that work."""
        super().send(
            [task for task in tasks if self._working is None or task.client in self._working]
        )

    def events(self) -> Generator[Event, None, None]:
        """Yield the round's events until the wanted part is over.

        Raises:
            PartOver: it is over.
        """
        for event in super().events():
            yield event
            del event
            if self._over:
                raise PartOver
        if self._working is not None:
            raise PartOver

    @property
    def _over(self) -> bool:
        reports = self._watcher.reports
        return len(reports) >= self._passes or any(one.status != "accepted" for one in reports)
