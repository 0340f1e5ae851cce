"""Patience: how long a round waits for a client that is connected and does not answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.core.state import ServerState

PATIENCE = "patience"
"""The key in `ServerState.memory` of the seconds that the newest answers took."""

LEAST_S = 600.0  # what is waited at least, unless the user says otherwise
ANSWERS = 1000  # the newest answers, by which it is known what an answer takes


@dataclass(frozen=True)
class Patience:
    """The limit for a client that does not answer.

    It is `times` the median of the seconds that answers to tasks took, at least `LEAST_S`, and
    holds once a round has ended. A minority of slow clients does not move a median.

    Attributes:
        times: the factor; None: there is no limit.
        limit_s: seconds in place of that limit, from the first round on.
    """

    times: float | None = None
    limit_s: float | None = None

    @staticmethod
    def limit_of(patience: Patience | None, memory: Mapping[str, Any]) -> float | None:
        """Return the finite limit in seconds after rounds with this memory; None: there is none."""
        limit_s = math.inf if patience is None else patience.after(memory)
        return None if limit_s == math.inf else limit_s

    def after(self, memory: Mapping[str, Any]) -> float:
        """Return the limit in seconds after rounds with this memory; infinite without one."""
        if self.limit_s is not None:
            return self.limit_s
        took_s = memory.get("took_s", ())
        if self.times is None or not len(took_s):
            return math.inf
        return max(LEAST_S, self.times * float(statistics.median(took_s)))


class Waiting:
    """Whose turn it is since when, in one round; all times are seconds since the round began.

    Args:
        patience: the limit; None: every client may take any time.
        state: the state before the round.
    """

    def __init__(self, patience: Patience | None, state: ServerState) -> None:
        memory = state.memory.get(PATIENCE, {})
        self.limit_s = math.inf if patience is None else patience.after(memory)
        self._took_s: list[float] = [float(one) for one in memory.get("took_s", ())]
        self._waited: Mapping[int, float] = memory.get("waited_s", {})  # of tasks in flight
        self._since: dict[int, float] = {}
        self._measures = patience is not None

    @property
    def reason(self) -> str:
        """Why a client is given up."""
        return f"connected, but no answer within {self.limit_s:g} s"

    def ask(self, client: int, now_s: float) -> None:
        """Note that it is a client's turn from now on."""
        self._since[client] = now_s

    def resume(self, clients: Iterable[int], now_s: float) -> None:
        """Note that these clients owe an update since an earlier round."""
        for client in clients:
            self._since[client] = now_s - self._waited.get(client, 0.0)

    def pause(self, client: int) -> None:
        """Note that it is the server's turn, or that the client has no task any more."""
        self._since.pop(client, None)

    def answered(self, client: int, now_s: float) -> None:
        """Note that a client has sent its update."""
        since = self._since.pop(client, None)
        if since is not None:
            self._took_s.append(now_s - since)

    def next_s(self) -> float | None:
        """Return the moment at which the first client is given up; None: there is none."""
        if self.limit_s == math.inf or not self._since:
            return None
        return min(self._since.values()) + self.limit_s

    def spent(self, now_s: float) -> list[int]:
        """Return the clients whose turn it has been for as long as the limit."""
        return [one for one, since in self._since.items() if now_s - since >= self.limit_s]

    def memory(self, in_flight: Iterable[int], now_s: float) -> dict[str, Any]:
        """Return the memory after the round, for `ServerState.memory`."""
        if not self._measures:
            return {}
        newest = np.array(self._took_s[-ANSWERS:], np.float64)
        waited = {one: now_s - self._since[one] for one in in_flight if one in self._since}
        return {
            **({"took_s": newest} if newest.size else {}),
            **({"waited_s": waited} if waited else {}),
        }
