"""When clients are available: always, by chance, or as in a trace."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.seeds import generator
from layers.settings import Positive, PositiveShare, Settings

ON = {"1", "on", "available", "true"}
OFF = {"0", "off", "unavailable", "false"}


class Presence(ABC):
    """When each client of a population is there; times are seconds since the run began."""

    @abstractmethod
    def there(self, client: int, at_s: float) -> bool:
        """Return whether a client is there."""

    @abstractmethod
    def next_change_s(self, client: int, at_s: float) -> float:
        """Return the first time after `at_s` at which a client may come or go; infinity if none."""

    def those_there(self, clients: np.ndarray, at_s: float) -> tuple[np.ndarray, float]:
        """Return those of `clients`, int64 (n,), that are there, and until when that holds.

        It asks for one client after the other; a presence that knows more can be faster.
        """
        listed = clients.tolist()
        there = np.array([self.there(client, at_s) for client in listed], bool)
        until_s = min((self.next_change_s(client, at_s) for client in listed), default=math.inf)
        return clients[there], until_s


class Availability(Settings, ABC):
    """When clients are there; the settings are the attributes of a frozen dataclass."""

    refusal = LogicError

    @abstractmethod
    def of(self, clients: int, seed: int) -> Presence:
        """Return when clients 0 to `clients` - 1 are there."""


@dataclass(frozen=True)
class Always(Availability):
    """Every client is there all the time."""

    def of(self, clients: int, seed: int) -> Presence:
        """Return a presence in which every client is always available."""
        return _Ever()


class _Ever(Presence):
    def there(self, client: int, at_s: float) -> bool:
        return True

    def next_change_s(self, client: int, at_s: float) -> float:
        return math.inf


@dataclass(frozen=True)
class Chance(Availability):
    """Each client is there with a probability; it is drawn again for each span of time.

    Attributes:
        share: the probability.
        span_s: length of a span; a client that comes or goes stays, or stays away, at least so
            long.
    """

    share: PositiveShare = 0.8
    span_s: Positive = 600.0

    def of(self, clients: int, seed: int) -> Presence:
        """Return the presence that the seed draws."""
        return _Drawn(self, clients, seed)


@dataclass(frozen=True)
class _Drawn(Presence):
    settings: Chance
    clients: int
    seed: int

    def there(self, client: int, at_s: float) -> bool:
        span = _turn(at_s, self.settings.span_s)
        return bool(_spans(self.seed, span, self.clients)[client] < self.settings.share)

    def those_there(self, clients: np.ndarray, at_s: float) -> tuple[np.ndarray, float]:
        span = _turn(at_s, self.settings.span_s)
        there = _spans(self.seed, span, self.clients)[clients] < self.settings.share
        return clients[there], self.next_change_s(0, at_s)

    def next_change_s(self, client: int, at_s: float) -> float:
        if self.settings.share == 1:
            return math.inf
        return (_turn(at_s, self.settings.span_s) + 1) * self.settings.span_s


def _turn(at_s: float, period_s: float) -> int:
    """Return the turn of a time: turn * period_s <= at_s < (turn + 1) * period_s.

    The products are compared as they are rounded, so that the next change is always later.
    """
    turn = math.floor(at_s / period_s)
    while turn * period_s > at_s:
        turn -= 1
    while (turn + 1) * period_s <= at_s:
        turn += 1
    return turn


@lru_cache(maxsize=8)
def _spans(seed: int, span: int, clients: int) -> np.ndarray:
    return generator(seed, "availability", span).random(clients)


@dataclass(frozen=True)
class Trace(Availability):
    """Clients come and go as in a CSV file with the columns client, time and state (on or off).

    Times are seconds since the run began. A client has the state of its last line at or before a
    time; before its first line it has the opposite state of that line. A client without a line is
    always there.

    Attributes:
        path: the file.
        repeat: whether the trace begins again after the time of its last line.
    """

    path: Path
    repeat: bool = False

    def of(self, clients: int, seed: int) -> Presence:
        """Read the file.

        Raises:
            LogicError: the file cannot be read, or a line of it is wrong.
        """
        changes: dict[int, list[tuple[float, bool]]] = {}
        try:
            rows = list(_rows(self.path, clients))
        except (UnicodeDecodeError, csv.Error) as error:
            raise LogicError(f"{self.path}: the trace is not a CSV file ({error})") from None
        for client, at_s, on in rows:
            own = changes.setdefault(client, [])
            if own and own[-1][0] >= at_s:
                raise LogicError(
                    f"{self.path}: client {client} has a line for {at_s:g} s after one for "
                    f"{own[-1][0]:g} s; each client's lines must be in order of time"
                )
            own.append((at_s, on))
        end_s = max((own[-1][0] for own in changes.values()), default=0.0)
        return _Traced(
            {client: tuple(at for at, _ in own) for client, own in changes.items()},
            {client: tuple(on for _, on in own) for client, own in changes.items()},
            end_s if self.repeat and end_s > 0 else math.inf,
        )


@dataclass(frozen=True)
class _Traced(Presence):
    at_s: dict[int, tuple[float, ...]]
    on: dict[int, tuple[bool, ...]]
    period_s: float

    def those_there(self, clients: np.ndarray, at_s: float) -> tuple[np.ndarray, float]:
        # A client without a line is always there.
        lined = np.intersect1d(clients, np.fromiter(self.on, np.int64, len(self.on)))
        there, until_s = super().those_there(lined, at_s)
        return np.setdiff1d(clients, np.setdiff1d(lined, there), assume_unique=True), until_s

    def there(self, client: int, at_s: float) -> bool:
        if client not in self.on:
            return True
        begun_s = self._begun_s(at_s)
        place = self._next_line(client, at_s, begun_s) - 1
        return self.on[client][place] if place >= 0 else not self.on[client][0]

    def next_change_s(self, client: int, at_s: float) -> float:
        if client not in self.on:
            return math.inf
        begun_s = self._begun_s(at_s)
        place = self._next_line(client, at_s, begun_s)
        if place < len(self.at_s[client]):
            return begun_s + self.at_s[client][place]
        if self.period_s == math.inf:
            return math.inf
        return (_turn(at_s, self.period_s) + 1) * self.period_s

    def _begun_s(self, at_s: float) -> float:
        """Return when the trace began for the last time."""
        return 0.0 if self.period_s == math.inf else _turn(at_s, self.period_s) * self.period_s

    def _next_line(self, client: int, at_s: float, begun_s: float) -> int:
        """Return the place of the first line after a time."""
        return bisect_right(self.at_s[client], at_s, key=lambda line_s: begun_s + line_s)


def _rows(path: Path, clients: int) -> Iterator[tuple[int, float, bool]]:
    try:
        file = open(path, newline="", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        where = "" if path.is_absolute() else f"; relative paths begin at {Path.cwd()}"
        raise LogicError(f"{path}: the trace cannot be read ({error.strerror}){where}") from None
    with file:
        reader = csv.DictReader(file)
        if reader.fieldnames is None or not {"client", "time", "state"} <= set(reader.fieldnames):
            raise LogicError(f"{path}: the first line must name the columns client, time and state")
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            try:
                client, at_s = int(row["client"]), float(row["time"])
            except (TypeError, ValueError):
                raise LogicError(f"{where}: client and time must be numbers") from None
            state = (row["state"] or "").strip().lower()
            if not 0 <= client < clients:
                raise LogicError(f"{where}: client {client}; there are 0 to {clients - 1}")
            if not 0 <= at_s < math.inf:
                raise LogicError(f"{where}: time {at_s}; it must be seconds from 0")
            if state not in ON | OFF:
                raise LogicError(f"{where}: state {state!r}; it must be on or off")
            yield client, at_s, state in ON
