"""How long the server waits for a client that is connected and does not answer."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Iterable

LEAST_S = 600.0  # what is waited at least, unless the user says otherwise
ANSWERS = 1000  # the newest answers, by which it is known what an answer takes
LOG_WAIT_S = 60.0  # seconds of a round after which the log says which clients are waited for
SILENT = "connected, but no answer within {:g} s"


class Patience:
    """Whose turn it is since when, and what an answer takes.

    The limit is `times` the median of the seconds that answers to tasks took, at least `LEAST_S`,
    and holds when a round has ended. A minority of slow clients does not move a median, so they
    cannot make the server more and more patient.

    Args:
        times: the factor; None: there is no limit.
        limit_s: seconds in place of that limit, from the first round on.
    """

    def __init__(self, times: float | None, limit_s: float | None) -> None:
        self._times = times
        self._fixed_s = limit_s
        self._asked: dict[int, float] = {}
        self._took_s: deque[float] = deque(maxlen=ANSWERS)
        self._known = False  # whether a round has ended

    @property
    def limit_s(self) -> float:
        """Seconds after which a client that does not answer is given up; infinite for never."""
        if self._fixed_s is not None:
            return self._fixed_s
        if self._times is None or not self._known or not self._took_s:
            return math.inf
        return max(LEAST_S, self._times * statistics.median(self._took_s))

    @property
    def typical_s(self) -> float | None:
        """What an answer takes, for a checkpoint; None: no round has ended."""
        return statistics.median(self._took_s) if self._known and self._took_s else None

    def restore(self, typical_s: float | None) -> None:
        """Go on from what `typical_s` was."""
        self._took_s.clear()
        if typical_s is not None:
            self._took_s.append(typical_s)
        self._known = typical_s is not None

    def begin_round(self, in_flight: Iterable[int]) -> None:
        """Record that a round begins; the clients `in_flight` owe an answer to an earlier task."""
        now = time.monotonic()
        self._asked = {client: self._asked.get(client, now) for client in in_flight}

    def end_round(self) -> None:
        """Record that a round has ended."""
        self._known = True

    def ask(self, client: int) -> None:
        """Record that it is a client's turn from now."""
        self._asked[client] = time.monotonic()

    def pause(self, client: int) -> None:
        """Record that it is not the client's turn any more."""
        self._asked.pop(client, None)

    def answered(self, client: int) -> None:
        """Record that a client has answered its task."""
        asked = self._asked.pop(client, None)
        if asked is not None:
            self._took_s.append(time.monotonic() - asked)

    def spent(self) -> list[int]:
        """Return the clients whose turn it has been for longer than the limit."""
        limit_s, now = self.limit_s, time.monotonic()
        if limit_s == math.inf:
            return []
        return [client for client, since in self._asked.items() if now - since > limit_s]

    def since(self, clients: Iterable[int]) -> float:
        """Return the moment (monotonic) since which the first of these clients is waited for."""
        return min((self._asked[one] for one in clients if one in self._asked), default=math.inf)

    def text(self, since: float) -> str:
        """Return, for the operator, since when it is waited, until when, and what to type."""
        waited_s = max(time.monotonic() - since, 0.0)
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - waited_s))
        limit_s = self.limit_s
        until = (
            "there is no limit"
            if limit_s == math.inf
            else f"each is given up {limit_s:.0f} s after it was asked"
        )
        return (
            f"since {began} ({waited_s:.0f} s); {until}. To wait for SECONDS at most: Ctrl-C, "
            "then fedmx resume RUN --patience SECONDS"
        )
