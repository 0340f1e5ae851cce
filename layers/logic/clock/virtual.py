"""Virtual time: what happens to the clients of a round, in the order in which it would."""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from layers.logic.clock.availability import Always, Availability
from layers.logic.clock.devices import Devices, Fleet
from layers.logic.clock.timesheet import Moment, Timesheet
from layers.logic.clock.uploads import Channel, Parallel, Uploads
from layers.logic.core.messages import Training
from layers.logic.core.report import Times
from layers.logic.errors import LogicError
from layers.logic.seeds import generator

WHY = {"dropped": "dropped out", "watched": "left, as its availability says"}


@dataclass(frozen=True)
class ClockEvent:
    """One thing that happens.

    Attributes:
        kind: the client has trained, its update has arrived, or it has dropped out; or the timer
            has fired, which concerns no client.
        client: -1 where the timer has fired.
        reason: why it dropped out.
    """

    kind: Literal["trained", "arrived", "dropped", "timer"]
    client: int
    at_s: float
    reason: str = ""


class VirtualClock:
    """A queue of events; all times are seconds since the round began, but for `run_s`.

    Args:
        clients: N, of the run.
        devices: how fast clients are.
        seed: the experiment's, of every draw.
        uploads: how they share the way to the server.
        availability: when clients are there.
        dropout: probability that a client that was asked drops out, at a moment that is drawn
            uniformly from the time that its training and upload take.
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
        self._dropout = dropout
        self._base_s = 0.0  # of the run, when the round under way began
        self._ended_s = 0.0  # of the run, when the round before it had ended
        self._begun = False  # whether a round is under way, or has not been settled
        self._reset()

    def _reset(
        self,
        round: int = 0,
        turns: Sequence[int] | None = None,
        outstanding: Container[int] = (),
        deadline_s: float | None = None,
    ) -> None:
        self._round = round
        self._outstanding = outstanding
        self._deadline_s = math.inf if deadline_s is None else deadline_s
        self._now_s = 0.0
        self._took_s: float | None = None
        self._timer_s = math.inf
        self._sheet = Timesheet()
        # The order of asking decides among events at the same time.
        self._order: dict[int, int] = {}
        self._queue: list[tuple[float, int, int, str]] = []  # at_s, order, client, kind
        self._changes: dict[int, float] = {}  # when one next comes or goes perhaps, of the run
        self._channel: Channel = self._uploads.open(turns)
        self._arrived = False

    # --- between rounds ---------------------------------------------------------------------

    @property
    def run_s(self) -> float:
        """Seconds since the run began."""
        return self._base_s + self.elapsed_s

    def restore(self, run_s: float) -> None:
        """Go on from `run_s`."""
        self._base_s = self._ended_s = run_s
        self._begun = False
        self._reset()

    def settle(self) -> None:
        """Let the time of the round that is over pass."""
        if self._begun:
            self._base_s = self._ended_s = self.run_s
            self._begun = False
            self._reset(self._round)

    @property
    def waited_s(self) -> float:
        """Seconds between the round before and the one under way, in which nobody was there."""
        return self._base_s - self._ended_s

    def there(self, clients: Iterable[int]) -> list[int]:
        """Return which clients are there; lets time pass until there is one.

        Raises:
            LogicError: nobody will come any more.
        """
        everybody = list(clients)
        if self._always or not everybody:
            return everybody
        while True:
            found = [one for one in everybody if self._presence.there(one, self._base_s)]
            if found:
                return found
            next_s = min(self._presence.next_change_s(one, self._base_s) for one in everybody)
            if next_s == math.inf:
                raise LogicError(
                    f"no client is there {self._base_s:g} s after the run began, and none comes "
                    "any more; give a longer trace, or let it repeat"
                )
            self._base_s = next_s

    # --- a round ----------------------------------------------------------------------------

    def begin(
        self,
        round: int,
        outstanding: Container[int],
        deadline_s: float | None = None,
        turns: Sequence[int] | None = None,
    ) -> None:
        """Begin a round.

        Args:
            round: from 1.
            outstanding: a view of the clients that owe an update; the round keeps it.
            deadline_s: when the round ends at the latest; None: when its last client has ended.
            turns: the order of uploads, if they have to keep one.
        """
        self.settle()
        self._begun = True
        self._reset(round, turns, outstanding, deadline_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, or that it took once nothing is left to happen."""
        return self._now_s if self._took_s is None else self._took_s

    def estimate(
        self, client: int, samples: int, training: Training, bytes: int, round: int
    ) -> tuple[float, float]:
        """Return the seconds that a client trains, download included, and uploads, alone."""
        train_s = self._fleet.download_s(client, bytes, round)
        train_s += self._fleet.train_s(client, samples, training)
        return train_s, self._fleet.upload_s(client, bytes, round)

    def ask(self, client: int, samples: int, training: Training, bytes: int) -> None:
        """Give a client a task now, which it has received after so many bytes."""
        train_s, upload_s = self.estimate(client, samples, training, bytes, self._round)
        self._order[client] = len(self._order)
        self._sheet.ask(client, self._now_s)
        if self._dropout:
            fails, when = generator(self._seed, "dropout", self._round, client).random(2)
            if fails < self._dropout:
                self._push(self._now_s + when * (train_s + upload_s), client, "dropped")
        if not self._always:
            self._watch(client, self._base_s + self._now_s)
        self._push(self._now_s + train_s, client, "trained")

    def upload(self, client: int, bytes: int, dated_s: float | None = None) -> None:
        """Let a client upload from now on, or from when its grant is dated, if that is earlier.

        Nothing comes of it if the client has gone in the meantime.
        """
        if client not in self._outstanding:
            return
        ready_s = self._now_s if dated_s is None else min(dated_s, self._now_s)
        alone_s = self._fleet.upload_s(client, bytes, self._round)
        self._channel.enter(client, bytes, alone_s, ready_s)

    def trained(self, client: int) -> None:
        """Take note that a client's training is over, and what it made is known."""
        self._note(client, "trained_s", self._now_s)

    def decide(self, client: int, granted: bool, dated_s: float | None = None) -> None:
        """Take note of a verdict; one who is declined has ended."""
        at_s = self._now_s if dated_s is None else min(dated_s, self._now_s)
        self._note(client, "decided_s", at_s)
        if not granted:
            self._end(client, at_s)

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment at which the timer fires, once; None: at none.

        Of things at the same moment it is the last, and after the deadline it does not fire.
        """
        self._timer_s = math.inf if at_s is None else at_s

    def next(self) -> ClockEvent | None:
        """Return what happens next; None when nothing does any more before the deadline.

        A round to which nothing arrives lasts until its deadline.
        """
        if self._took_s is not None:
            return None
        while True:
            queued = self._queue[0] if self._queue else None
            sent = self._channel.next_end()
            if queued is not None and queued[2] not in self._outstanding:
                heapq.heappop(self._queue)
                continue
            if sent is not None and (
                queued is None or (sent[0], self._order[sent[1]]) <= queued[:2]
            ):
                at_s, client, kind = sent[0], sent[1], "arrived"
            elif queued is not None and self._something_due(sent is not None):
                at_s, client, kind = queued[0], queued[2], queued[3]
            elif self._timer_s <= self._deadline_s and self._timer_s < math.inf:
                return self._fire()
            else:
                waited = self._deadline_s < math.inf and not self._arrived
                self._took_s = self._deadline_s if waited else self._sheet.last_end_s
                return None
            if self._timer_s < at_s and self._timer_s <= self._deadline_s:
                return self._fire()
            if at_s > self._deadline_s:
                self._now_s = self._deadline_s
                self._took_s = self._deadline_s
                for late in self._order:
                    if late in self._outstanding:
                        self._end(late, self._deadline_s)
                return None
            event = self._happen(at_s, client, kind, sent)
            if event is not None:
                return event

    def times(self) -> Mapping[int, Times]:
        """Return who did what when in the round under way, or just over."""
        return self._sheet.times()

    def _happen(
        self, at_s: float, client: int, kind: str, sent: tuple[float, int, float] | None
    ) -> ClockEvent | None:
        # An upload whose grant is dated back may have ended before now.
        self._now_s = max(self._now_s, at_s)
        if kind == "arrived":
            assert sent is not None
            self._note(client, "sending_s", sent[2])
            self._channel.end(client)
            self._arrived = True
            self._end(client, at_s)
            return ClockEvent("arrived", client, at_s)
        heapq.heappop(self._queue)
        if kind == "trained":
            return ClockEvent("trained", client, at_s)
        if kind == "watched":
            change_s = self._changes[client]
            if self._presence.there(client, change_s):
                self._watch(client, change_s)
                return None
        self._end(client, at_s)
        return ClockEvent("dropped", client, at_s, WHY[kind])

    def _fire(self) -> ClockEvent:
        self._now_s, self._timer_s = max(self._now_s, self._timer_s), math.inf
        return ClockEvent("timer", -1, self._now_s)

    def _something_due(self, sending: bool) -> bool:
        """Return whether anything is still to happen but that clients come and go."""
        return sending or any(
            kind != "watched" and client in self._outstanding for _, _, client, kind in self._queue
        )

    def _watch(self, client: int, run_s: float) -> None:
        """Look whether a client is there, at `run_s` and whenever that may change.

        When it will have gone is not looked for: that may be long after the round.
        """
        if not self._presence.there(client, run_s):
            change_s = run_s
        else:
            change_s = self._presence.next_change_s(client, run_s)
        if change_s < math.inf:
            self._changes[client] = change_s  # as it is: less the base, plus the base may be less
            self._push(max(change_s - self._base_s, self._now_s), client, "watched")

    def _end(self, client: int, at_s: float) -> None:
        self._channel.leave(client, at_s)
        self._note(client, "ended_s", at_s)

    def _note(self, client: int, moment: Moment, at_s: float) -> None:
        """Write down when something was."""
        self._sheet.note(client, moment, at_s)

    def _push(self, at_s: float, client: int, kind: str) -> None:
        heapq.heappush(self._queue, (at_s, self._order[client], client, kind))
