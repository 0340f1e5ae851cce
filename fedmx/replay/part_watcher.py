"""Watches one client's part in one round: what each station made of its task and its update."""

from __future__ import annotations

import pdb
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedmx.course.hashes import message_hash
from fedmx.protocol.messages import CODEC
from fedmx.replay.breakpoints import Breakpoint
from fedmx.replay.vectors import VectorNumbers, arrays_of, flat, payload_bytes, vector_of
from layers.logic import ClientReport, ClientSide, Context, ServerSide, Task, Update
from layers.logic.watch.watcher import End, Station
from layers.network import wire_size

PLAIN: Mapping[tuple[str, str], object] = {
    (end, name): getattr(half, name)
    for end, half in (("server", ServerSide), ("client", ClientSide))
    for name in ("send", "receive")
}
"""The methods that take a task or an update and return it as it goes on, as every half has them."""


@dataclass(frozen=True, eq=False)
class Passage:
    """A task or an update as it left one station.

    Attributes:
        end: server or client.
        station: the hook's class and method, as in ``Stc.send``, or a place between hooks: start,
            task, training, message or decoded.
        pass_number: the pass of the lane, from 1.
        numbers: of the vector that it carries.
        bytes: of its arrays, without the slots that were decoded; of a task or a message, as
            encoded for the wire.
        notes: of a training: loss, steps and samples.
        sha256: of a message, the SHA-256 (hex) of its encoding; else empty.
        arrays: everything in it, by name, if it was asked for; the memory of a hook's half is under
            ``memory``.
    """

    end: End
    station: str
    pass_number: int
    numbers: VectorNumbers
    bytes: int
    notes: Mapping[str, float] = field(default_factory=dict)
    sha256: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the passage as plain values, without its arrays."""
        return {
            "end": self.end,
            "station": self.station,
            "pass": self.pass_number,
            **asdict(self.numbers),
            "bytes": self.bytes,
            **({"notes": dict(self.notes)} if self.notes else {}),
            **({"sha256": self.sha256} if self.sha256 else {}),
        }


class PartWatcher:
    """A watcher of one client's part in one round, which may stop in the debugger.

    Args:
        round: number of the round.
        client: number of the client; None: it only stops at `breakpoint`, for every client.
        keep: whether the passages keep copies of all arrays.
        breakpoint: the method to stop at; None: it does not stop.

    Attributes:
        passages: the passages until now, in order.
        reports: the fates of the client's updates, one for each pass.
    """

    def __init__(
        self,
        round: int,
        client: int | None,
        keep: bool = False,
        breakpoint: Breakpoint | None = None,
    ) -> None:
        self._round, self._client = round, client
        self._keep = keep
        self._breakpoint = breakpoint
        self.passages: list[Passage] = []
        self.reports: list[ClientReport] = []

    def call(self, end: End, key: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a half, in the debugger if it is the one to stop at."""
        context = arguments[-1]
        assert isinstance(context, Context)
        everybody = self._client is None or context.client is None
        if context.round != self._round or not (everybody or context.client == self._client):
            return method(*arguments)
        if self._breakpoint is not None and self._breakpoint.matches(end, key, method):
            returned = _in_debugger(method, arguments)
        else:
            returned = method(*arguments)
        plain = PLAIN.get((end, method.__name__))
        own = plain is not None and getattr(method, "__func__", None) is not plain
        if own and context.client == self._client:
            self._note_walk(end, key, method.__name__, returned, context)
        return returned

    def saw(self, end: End, station: Station, message: Task | Update) -> None:
        """Note a task or an update between the hooks."""
        if (message.round, message.client) != (self._round, self._client):
            return
        notes: dict[str, float] = {}
        if station == "training" and isinstance(message, Update):
            notes = {**message.metrics, "steps": message.steps, "samples": message.samples}
        self._note(end, station, message, notes)

    def ended(self, report: ClientReport) -> None:
        """Note the fate of the client's update."""
        if report.client == self._client and self.passages:  # not of a round before
            self.reports.append(report)

    def _note_walk(
        self, end: End, key: str, name: str, message: Task | Update, context: Context
    ) -> None:
        if name == "send" and context.slot:
            message = replace(message, slots={**message.slots, key: context.slot})
        hook = key.partition(":")[2]
        self._note(end, f"{hook}.{name}", message, {}, flat(context.memory, f"memory of {hook}"))

    def _note(
        self,
        end: End,
        station: str,
        message: Task | Update,
        notes: Mapping[str, float],
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        arrays = arrays_of(message)
        encoded = station in ("task", "message")
        decoded = station == "decoded" or station.endswith(".receive")
        passage = Passage(
            end,
            station,
            message.pass_number,
            VectorNumbers.of(vector_of(message)),
            wire_size(CODEC.encode(message).size) if encoded else payload_bytes(message, decoded),
            notes,
            message_hash(message) if station == "message" else "",
        )
        if self._keep:
            remembered = {
                name: np.asarray(value)
                for name, value in (memory or {}).items()
                if isinstance(value, np.ndarray | np.generic | int | float)
            }
            kept = {name: array.copy() for name, array in {**arrays, **remembered}.items()}
            passage = replace(passage, arrays=kept)
        self.passages.append(passage)


class _Debugger(pdb.Pdb):
    """Python's debugger, which says whether its user has left it."""

    left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()


def _in_debugger(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a method, and stop at its first line.

    Raises:
        KeyboardInterrupt: whoever used the debugger has left it.
    """
    debugger = _Debugger(nosigint=True)
    returned = debugger.runcall(method, *arguments)
    if debugger.left:
        raise KeyboardInterrupt
    return returned
