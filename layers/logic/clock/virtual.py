"""Virtual time: the events of clients, in the order in which they would happen.

Times in the interface are seconds since the round began. Inside, they are seconds since the last
round began that found no task in flight, so that no time of a task that outlives its round is
rounded.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from layers.logic.clock.availability import Always, Availability
from layers.logic.clock.devices import Devices, Fleet
from layers.logic.clock.timesheet import Stamp, Timesheet
from layers.logic.clock.uploads import Channel, Parallel, Uploads
from layers.logic.core.messages import Training
from layers.logic.core.report import Times
from layers.logic.errors import LogicError
from layers.logic.seeds import generator

NOBODY = np.zeros(0, np.int64)
DEADLINE = "deadline"  # the timer that ends a round
WHY = {"dropped": "dropped out", "watched": "left, as its availability says"}


@dataclass(frozen=True)
class ClockEvent:
    """One event in virtual time.

    Attributes:
        kind: the client has trained, its update has arrived, or it has dropped out; or a timer has
            fired, which concerns no client.
        client: number of the client; -1 for a timer.
        at_s: time of the event, in seconds since the round began.
        reason: why the client dropped out, or the name of the timer; empty for other events.
    """

    kind: Literal["trained", "arrived", "dropped", "timer"]
    client: int
    at_s: float
    reason: str = ""


class VirtualClock:
    """A queue of events.

    Args:
        clients: N, the number of clients of the run.
        devices: how fast clients train and upload.
        seed: seed of every draw.
        uploads: how clients share the channel to the server; None: in parallel.
        availability: when clients are available; None: always.
        dropout: probability from 0 to 1 that a client that was asked drops out. The moment is drawn
            uniformly from the time that its training and upload take.

    Raises:
        LogicError: `dropout` is not a probability.
    """

    virtual = True

    def __init__(
        self,
        clients: int,
        devices: Devices,
        seed: int = 0,
        uploads: Uploads | None = None,
        availability: Availability | None = None,
        dropout: float = 0.0,
    ) -> None:
        if not 0 <= dropout <= 1:
            raise LogicError(f"dropout must be between 0 and 1, not {dropout}")
        self._clients = clients
        self._seed = seed
        self._fleet: Fleet = devices.draw(clients, seed)
        self._uploads = uploads or Parallel()
        self._presence = (availability or Always()).of(clients, seed)
        self._always = isinstance(availability or Always(), Always)
        # The clients that were looked at, those that were there, and from when to when.
        self._available = (NOBODY, NOBODY, 0.0, 0.0)
        self._dropout = dropout
        # Times of the run. While tasks are in flight, both are the begin of their first round.
        self._base_s = 0.0  # the begin of the current round
        self._ended_s = 0.0  # the end of the round before; the run waits from here to the begin
        self._begun = False  # whether a round was begun and not settled
        self._continues = False  # whether the tasks of the last round may outlive it
        self._reset()

    def _reset(self, turns: Sequence[int] | None = None) -> None:
        self._outstanding: dict[int, int] = {}  # by client, the number of the task that it has
        self._now_s = 0.0
        self._sheet = Timesheet()
        self._reset_round(0.0)
        # Events at the same time are ordered as the clients were asked.
        self._order: dict[int, int] = {}
        self._asked = 0  # tasks so far
        self._queue: list[tuple[float, int, int, str]] = []  # at_s, order, client, kind
        self._changes: dict[
            int, float
        ] = {}  # by client, the time of the run at which to look again
        self._channel: Channel = self._uploads.open(turns)

    def _reset_round(self, began_s: float) -> None:
        self._began_s = began_s
        self._after_s = 0.0
        self._took_s: float | None = None
        self._timers: dict[str, float] = {}
        self._deadline_s = math.inf
        self._arrived = False

    # --- between rounds ---------------------------------------------------------------------

    @property
    def run_s(self) -> float:
        """Seconds since the run began."""
        return self._base_s + (self._began_s + self._passed_s)

    @property
    def opened_s(self) -> float:
        """Seconds since the run began, when the round under way was opened."""
        closed = self._continues and self._took_s is not None
        return self.run_s if closed else self._base_s + self._began_s

    def tree(self) -> dict[str, Any]:
        """Return the time of the run, and that of the tasks in flight, as named numbers."""
        if not (self._continues and self._outstanding):
            return {"run_s": self.run_s}
        return {
            "run_s": self.run_s,
            "base_s": self._base_s,
            "now_s": self._began_s + self._passed_s,
            "outstanding": dict(self._outstanding),
            "order": {one: self._order[one] for one in self._outstanding},
            "asked": self._asked,
            "queue": [list(one) for one in sorted(self._queue) if not self._is_over(*one[1:3])],
            "changes": {one: at for one, at in self._changes.items() if one in self._outstanding},
            "channel": self._channel.tree(),
            "times": self._sheet.later(self._outstanding, 0.0).tree(),
        }

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Continue from the result of `tree`."""
        self._base_s = self._ended_s = tree["run_s"]
        self._begun = self._continues = "base_s" in tree
        self._reset()
        if not self._continues:
            return
        self._base_s = self._ended_s = tree["base_s"]
        self._now_s = tree["now_s"]
        self._outstanding = dict(tree["outstanding"])
        self._order, self._asked = dict(tree["order"]), tree["asked"]
        self._queue = [(one[0], one[1], one[2], one[3]) for one in tree["queue"]]
        self._changes = dict(tree["changes"])
        self._channel.restore(tree["channel"])
        self._sheet = Timesheet.of_tree(tree["times"])
        self._began_s, self._took_s = self._now_s, 0.0

    def settle(self) -> None:
        """Advance the time of the run by the duration of the last round, if no task is left."""
        if self._begun and not (self._continues and self._outstanding):
            self._base_s = self._ended_s = self.run_s
            self._begun = self._continues = False
            self._reset()

    def drop(self) -> None:
        """End all tasks in flight."""
        for client in list(self._outstanding):
            self.cancel(client)
        self._continues = False

    @property
    def waited_s(self) -> float:
        """Seconds between the last round and this one in which no client was available."""
        return self._base_s - self._ended_s

    @property
    def everybody_there(self) -> bool:
        """Whether every client is there all the time, so that nobody need be looked at."""
        return self._always

    def available(self, clients: Iterable[int]) -> list[int]:
        """Return the available clients in a list; see `available_of`."""
        found: list[int] = self.available_of(np.fromiter(clients, np.int64)).tolist()
        return found

    def available_of(self, clients: np.ndarray) -> np.ndarray:
        """Return the available clients; without any, advance time until there are some.

        Args:
            clients: int64 (n,), ascending. While nobody comes or goes, the same array gets the same
                answer, and nobody is looked at.

        Raises:
            LogicError: no client will ever be available again.
        """
        if self._always or not clients.size:
            return clients
        asked, found, from_s, until_s = self._available
        now_s = self.opened_s
        if asked is clients and found.size and from_s <= now_s < until_s:
            return found
        if self._continues and self._outstanding:  # their events come first
            found, until_s = self._presence.those_there(clients, now_s)
            self._available = clients, found, now_s, until_s
            return found
        while True:
            found, until_s = self._presence.those_there(clients, self._base_s)
            if found.size:
                self._available = clients, found, self._base_s, until_s
                return found
            if until_s == math.inf:
                raise LogicError(
                    f"no client is available {self._base_s:g} s after the run began, nor later; "
                    "give a longer trace, or let it repeat"
                )
            self._base_s = until_s

    # --- a round ----------------------------------------------------------------------------

    def begin(
        self,
        turns: Sequence[int] | None = None,
        before_s: float = 0.0,
        after_s: float = 0.0,
        continues: bool = False,
    ) -> None:
        """Begin a round.

        Args:
            turns: the order in which clients must upload; None: as they are ready.
            before_s: seconds that pass before clients can be asked.
            after_s: seconds that pass after the last update.
            continues: whether tasks of earlier rounds are in flight, or those of this round may
                outlive it.
        """
        if not (continues and self._outstanding):
            self._continues = False
        self.settle()
        self._begun = True
        if self._continues:
            self._ended_s = self._base_s  # while tasks are in flight, nobody is waited for
            self._now_s = self._began_s + self._passed_s
            self._reset_round(self._now_s)
            self._sheet = self._sheet.later(self._outstanding, 0.0)
        else:
            self._reset(turns)
        self._continues = continues
        self._now_s += before_s
        self._after_s = after_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began; its duration once it is closed."""
        return self._passed_s

    @property
    def _passed_s(self) -> float:
        # A clock that reports real time has another `elapsed_s`; its events follow this one.
        now_s = self._now_s - self._began_s
        return now_s if self._took_s is None else self._took_s + self._after_s

    def estimate(
        self, client: int, samples: int, training: Training, bytes: int, round: int
    ) -> tuple[float, float]:
        """Return the seconds of a client's download and training, and of its upload alone."""
        train_s = self._fleet.download_s(client, bytes, round)
        train_s += self._fleet.train_s(client, samples, training)
        return train_s, self._fleet.upload_s(client, bytes, round)

    def ask(self, client: int, samples: int, training: Training, bytes: int, round: int) -> None:
        """Give a client a task now, whose number is `round` and whose download takes `bytes`."""
        train_s, upload_s = self.estimate(client, samples, training, bytes, round)
        self._outstanding[client] = round
        self._order[client] = self._asked
        self._asked += 1
        if self._continues:
            self._sheet.forget(client)
        self._sheet.ask(client, self._now_s)
        if self._dropout:
            fails, when = generator(self._seed, "dropout", round, client).random(2)
            if fails < self._dropout:
                self._push(self._now_s + when * (train_s + upload_s), client, "dropped")
        if not self._always:
            self._watch(client, self._base_s + self._now_s)
        self._push(self._now_s + train_s, client, "trained")

    def upload(self, client: int, bytes: int, dated_s: float | None = None) -> None:
        """Let a client upload from now on, or from the date of its grant, if that is earlier.

        Do nothing if the client has dropped out in the meantime.
        """
        if client not in self._outstanding:
            return
        ready_s = self._now_s if dated_s is None else min(self._began_s + dated_s, self._now_s)
        alone_s = self._fleet.upload_s(client, bytes, self._outstanding[client])
        self._channel.enter(client, bytes, alone_s, ready_s)

    def trained(self, client: int) -> None:
        """Record that a client's training has ended and its result is known."""
        self._note(client, "trained_s", self._now_s)

    def decide(self, client: int, granted: bool, dated_s: float | None = None) -> None:
        """Record a verdict; it ends the part of a declined client."""
        at_s = self._now_s if dated_s is None else min(self._began_s + dated_s, self._now_s)
        self._note(client, "decided_s", at_s)
        if not granted:
            self._end(client, at_s)

    def cancel(self, client: int) -> None:
        """End a client's task now, if it has one."""
        if client in self._outstanding:
            self._end(client, self._now_s)

    def set_timer(self, name: str, at_s: float | None) -> None:
        """Set the moment at which a timer fires, once; None: it does not fire.

        It fires after all other events of the same moment; of timers of the same moment, the
        deadline is the last one.
        """
        self._timers.pop(name, None)
        if at_s is not None:
            self._timers[name] = self._began_s + at_s
            if name == DEADLINE:
                self._deadline_s = at_s

    def next(self) -> ClockEvent:
        """Return the next event; once no event is left, that is the deadline."""
        while True:
            queued = self._queue[0] if self._queue else None
            sent = self._channel.next_end()
            if queued is not None and self._is_over(queued[1], queued[2]):
                heapq.heappop(self._queue)
                continue
            if sent is not None and (
                queued is None or (sent[0], self._order[sent[1]]) <= queued[:2]
            ):
                at_s, client, kind = sent[0], sent[1], "arrived"
            elif queued is not None and self._is_work_left(sent is not None):
                at_s, client, kind = queued[0], queued[2], queued[3]
            else:
                return self._fire()
            if self._timers and min(self._timers.values()) < at_s:
                return self._fire()
            event = self._happen(at_s, client, kind, sent)
            if event is not None:
                return event

    def close(self) -> None:
        """End the round; if no update has arrived, it has lasted until its deadline."""
        waited = self._deadline_s < math.inf and not self._arrived
        ended_s = self._passed_s if self._continues else self._sheet.last_end_s
        self._took_s = self._deadline_s if waited else ended_s

    def times(self) -> Mapping[int, Times]:
        """Return the times of the clients with a task in the round under way, or the last one."""
        if not self._continues:
            return self._sheet.times()
        return self._sheet.later(self._sheet.since(self._began_s), self._began_s).times()

    def _happen(
        self, at_s: float, client: int, kind: str, sent: tuple[float, int, float] | None
    ) -> ClockEvent | None:
        # An upload whose grant was dated back may have ended earlier than now.
        self._now_s = max(self._now_s, at_s)
        if kind == "arrived":
            assert sent is not None
            self._note(client, "sending_s", sent[2])
            self._channel.end(client)
            self._arrived = True
            self._end(client, at_s)
            return ClockEvent("arrived", client, at_s - self._began_s)
        heapq.heappop(self._queue)
        if kind == "trained":
            return ClockEvent("trained", client, at_s - self._began_s)
        if kind == "watched":
            change_s = self._changes[client]
            if self._presence.there(client, change_s):
                self._watch(client, change_s)
                return None
        self._end(client, at_s)
        return ClockEvent("dropped", client, at_s - self._began_s, WHY[kind])

    def _fire(self) -> ClockEvent:
        first = min(self._timers, key=lambda one: (self._timers[one], one == DEADLINE), default="")
        if first:
            at_s = self._timers.pop(first)
            self._now_s = at_s if first == DEADLINE else max(self._now_s, at_s)
        return ClockEvent("timer", -1, self._now_s - self._began_s, first or DEADLINE)

    def _is_over(self, order: int, client: int) -> bool:
        """Return whether an event concerns a task that has ended."""
        if client not in self._outstanding:
            return True
        # In a lane of several passes, a draw for one pass also ends the later ones.
        return self._continues and order != self._order[client]

    def _is_work_left(self, sending: bool) -> bool:
        """Return whether any event is left besides changes of availability."""
        return sending or any(
            kind != "watched" and not self._is_over(order, client)
            for _, order, client, kind in self._queue
        )

    def _watch(self, client: int, run_s: float) -> None:
        """Check whether a client is available, at `run_s` and whenever that may change.

        The moment at which it leaves is not searched for: it may be long after the round.
        """
        if not self._presence.there(client, run_s):
            change_s = run_s
        else:
            change_s = self._presence.next_change_s(client, run_s)
        if change_s < math.inf:
            self._changes[client] = change_s  # exact: subtracting and adding the base would round
            self._push(max(change_s - self._base_s, self._now_s), client, "watched")

    def _end(self, client: int, at_s: float) -> None:
        self._outstanding.pop(client, None)
        self._channel.leave(client, at_s)
        self._note(client, "ended_s", at_s)

    def _note(self, client: int, stamp: Stamp, at_s: float) -> None:
        """Record the time of a moment."""
        self._sheet.note(client, stamp, at_s)

    def _push(self, at_s: float, client: int, kind: str) -> None:
        heapq.heappush(self._queue, (at_s, self._order[client], client, kind))
