"""How uploads share the channel to the server: one after the other, or at the same time."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from layers.logic.errors import LogicError
from layers.settings import Positive, Settings


class Channel(ABC):
    """The uploads of one round."""

    @abstractmethod
    def enter(self, client: int, bytes: int, alone_s: float, ready_s: float) -> None:
        """Let a client upload from `ready_s` on, for `alone_s` if it has the channel to itself."""

    @abstractmethod
    def leave(self, client: int, now_s: float) -> None:
        """Remove a client's upload, or its turn."""

    @abstractmethod
    def next_end(self) -> tuple[float, int, float] | None:
        """Return when the next upload ends if nothing changes, whose it is, when it began."""

    @abstractmethod
    def end(self, client: int) -> None:
        """End the upload that `next_end` returned."""

    @abstractmethod
    def tree(self) -> dict[str, Any]:
        """Return the uploads as named numbers."""

    @abstractmethod
    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on with the uploads that `tree` was made from."""


class Uploads(Settings, ABC):
    """How uploads share the channel; the settings are the attributes of a frozen dataclass."""

    refusal = LogicError

    @abstractmethod
    def open(self, turns: Sequence[int] | None) -> Channel:
        """Return the channel of a round.

        Args:
            turns: the order of the uploads; None: any order.
        """


@dataclass(frozen=True)
class Serial(Uploads):
    """One upload at a time, in the order in which they are ready, or in the order of the plan.

    In the order of the plan, an upload also waits for clients before it that still train (FedCS:
    Nishio and Yonetani 2019, algorithm 3).
    """

    def open(self, turns: Sequence[int] | None) -> Channel:
        return _Line(list(turns) if turns is not None else None)


@dataclass
class _Line(Channel):
    turns: list[int] | None
    free_s: float = 0.0
    waiting: dict[int, tuple[float, float]] = field(default_factory=dict)  # ready_s, alone_s
    current: tuple[float, int, float] | None = None  # ends_s, client, began_s

    def enter(self, client: int, bytes: int, alone_s: float, ready_s: float) -> None:
        self.waiting[client] = (ready_s, alone_s)
        self._begin_next()

    def leave(self, client: int, now_s: float) -> None:
        self.waiting.pop(client, None)
        if self.turns is not None and client in self.turns:
            self.turns.remove(client)
        if self.current is not None and self.current[1] == client:
            self.current, self.free_s = None, now_s
        self._begin_next(now_s)

    def next_end(self) -> tuple[float, int, float] | None:
        return self.current

    def end(self, client: int) -> None:
        assert self.current is not None
        self.free_s, self.current = self.current[0], None
        if self.turns is not None:
            self.turns.remove(client)
        self._begin_next()

    def tree(self) -> dict[str, Any]:
        waiting = {client: list(times) for client, times in self.waiting.items()}
        return {"free_s": self.free_s, "waiting": waiting, "current": self.current}

    def restore(self, tree: Mapping[str, Any]) -> None:
        self.free_s = tree["free_s"]
        self.waiting = {client: (times[0], times[1]) for client, times in tree["waiting"].items()}
        current = tree["current"]
        self.current = None if current is None else (current[0], current[1], current[2])

    def _begin_next(self, now_s: float = 0.0) -> None:
        if self.current is not None or not self.waiting:
            return
        if self.turns is None:
            client = next(iter(self.waiting))  # they entered in the order of time
        elif self.turns and self.turns[0] in self.waiting:
            client = self.turns[0]
        else:
            return
        ready_s, alone_s = self.waiting.pop(client)
        began_s = max(self.free_s, ready_s, now_s)
        self.current = (began_s + alone_s, client, began_s)


@dataclass(frozen=True)
class Parallel(Uploads):
    """All uploads at the same time, each at its own bandwidth, or less if the server has less.

    Attributes:
        bytes_per_s: the server's bandwidth, which the uploads share so that the smallest rate is as
            large as possible (max-min fairness); None: no limit.
    """

    bytes_per_s: Positive | None = None

    def open(self, turns: Sequence[int] | None) -> Channel:
        return _Free() if self.bytes_per_s is None else _Shared(self.bytes_per_s)


@dataclass
class _Free(Channel):
    """No upload waits for another one, or slows it."""

    ends: list[tuple[float, int, int, float]] = field(default_factory=list)
    entered: int = 0  # of two that end at the same time, the one that entered first is first

    def enter(self, client: int, bytes: int, alone_s: float, ready_s: float) -> None:
        heapq.heappush(self.ends, (ready_s + alone_s, self.entered, client, ready_s))
        self.entered += 1

    def leave(self, client: int, now_s: float) -> None:
        self.ends = [one for one in self.ends if one[2] != client]
        heapq.heapify(self.ends)

    def next_end(self) -> tuple[float, int, float] | None:
        if not self.ends:
            return None
        ends_s, _, client, began_s = self.ends[0]
        return ends_s, client, began_s

    def end(self, client: int) -> None:
        heapq.heappop(self.ends)

    def tree(self) -> dict[str, Any]:
        return {"ends": list(map(list, sorted(self.ends))), "entered": self.entered}

    def restore(self, tree: Mapping[str, Any]) -> None:
        self.ends = [(one[0], one[1], one[2], one[3]) for one in tree["ends"]]
        self.entered = tree["entered"]


@dataclass
class _Upload:
    left: float  # bytes
    most: float  # bytes a second that its own link allows
    began_s: float
    rate: float = 0.0


@dataclass
class _Shared(Channel):
    capacity: float
    uploads: dict[int, _Upload] = field(default_factory=dict)
    now_s: float = 0.0

    def enter(self, client: int, bytes: int, alone_s: float, ready_s: float) -> None:
        self._pass_time(ready_s)
        size = float(max(bytes, 1))
        most = size / alone_s if alone_s > 0 else math.inf
        self.uploads[client] = _Upload(size, most, max(ready_s, self.now_s))
        self._share()

    def leave(self, client: int, now_s: float) -> None:
        if client in self.uploads:
            self._pass_time(now_s)
            del self.uploads[client]
            self._share()

    def next_end(self) -> tuple[float, int, float] | None:
        best = None
        for client, upload in self.uploads.items():
            after_s = upload.left / upload.rate
            if best is None or after_s < best[0]:
                best = (after_s, client, upload.began_s)
        return None if best is None else (self.now_s + best[0], best[1], best[2])

    def end(self, client: int) -> None:
        found = self.next_end()
        assert found is not None
        self._pass_time(found[0])
        del self.uploads[client]
        self._share()

    def tree(self) -> dict[str, Any]:
        uploads = {client: asdict(upload) for client, upload in self.uploads.items()}
        return {"uploads": uploads, "now_s": self.now_s}

    def restore(self, tree: Mapping[str, Any]) -> None:
        self.uploads = {client: _Upload(**upload) for client, upload in tree["uploads"].items()}
        self.now_s = tree["now_s"]

    def _pass_time(self, now_s: float) -> None:
        passed = now_s - self.now_s
        if passed <= 0:
            return
        for upload in self.uploads.values():
            upload.left = max(upload.left - upload.rate * passed, 0.0)
        self.now_s = now_s

    def _share(self) -> None:
        """Give each link an equal part, the slowest first; the others share the unused rest."""
        left = self.capacity
        by_need = sorted(self.uploads.items(), key=lambda item: (item[1].most, item[0]))
        for place, (_, upload) in enumerate(by_need):
            upload.rate = min(upload.most, left / (len(by_need) - place))
            left -= upload.rate
