"""What an operator has told a server: to pause, to go on, to end, and about clients.

A pause and exclusions outlive the process. An exclusion is part of the state with which the next
round begins, which the journal has, so that a replay has it, too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedmx.deployment.operator_socket import OF_A_CLIENT, OF_THE_RUN, OperatorSocket
from fedmx.log import Log
from fedmx.monitoring.monitor import timestamp
from fedmx.run.durable import cannot_write, read_document, write_document
from layers.logic import ServerState
from layers.logic.core.state import EXCLUDED

log = Log("fedmx.server")
NAME = "operator.json"
REASON = "excluded by the operator"


class Clients(Protocol):
    """The clients that orders are about."""

    def is_known(self, client: int) -> bool:
        """Return whether the run has a client of this number."""

    def kick(self, client: int, reason: str) -> bool:
        """End a client's session, its task and its question; return whether it was connected."""

    def leave_out(self, client: int, reason: str) -> None:
        """End a client's task and question, and do not ask it again in this round."""

    def would_suffice(self, without: int) -> bool:
        """Return whether rounds can go on without this number of clients."""


@dataclass(frozen=True)
class Change:
    """A client that is excluded or included from a round on."""

    client: int
    excluded: bool
    round: int


class Orders:
    """Carries out what an operator says.

    Args:
        clients: the clients of the run.

    Attributes:
        paused: whether no further round may begin.
        excluded: the excluded clients, with the reasons; also those of a step back.
    """

    def __init__(self, clients: Clients) -> None:
        self.paused = False
        self.excluded: dict[Any, str] = {}
        self._clients = clients
        self._changes: list[Change] = []
        self._next_round = 1
        self._given: list[str] = []
        self._stops = False
        self._path: Path | None = None
        self._socket: OperatorSocket | None = None

    @contextlib.contextmanager
    def listening(self, folder: Path) -> Iterator[None]:
        """Listen in a run folder, and go on with what was said before.

        Raises:
            DamagedError: the file of what was said before is damaged.
        """
        self._path = folder / NAME
        if self._path.exists():
            known = read_document(self._path).values
            self.paused = known["paused"]
            self._changes = [Change(**one) for one in known["changes"]]
        if self.paused:
            log.warning("paused", "the run is paused; to go on: fedmx ctl {run} resume", run=folder)
        with OperatorSocket(folder, self._answer) as self._socket:
            yield
        self._socket = None

    def poll(self) -> None:
        """Answer what the operator has said.

        Raises:
            KeyboardInterrupt: the server is to end.
        """
        if self._socket is not None:
            self._socket.poll()
        if self._stops:
            raise KeyboardInterrupt("by fedmx ctl")

    def opening(self, state: ServerState) -> ServerState:
        """Return the state with which the round after it may begin."""
        self._next_round = round = state.round + 1
        excluded: dict[Any, str] = dict(state.memory.get(EXCLUDED, {}))
        for one in self._changes:
            if one.round >= round and one.excluded:
                excluded.setdefault(one.client, REASON)
            elif one.round >= round:
                excluded.pop(one.client, None)
        self.excluded = excluded
        return state.excluding(excluded)

    def opened(self) -> None:
        """Note that the round has begun; what is said from now on is for the next one."""
        round = self._next_round
        self._keep([replace(one, round=min(one.round, round)) for one in self._changes])
        self._next_round = round + 1

    def forget(self) -> None:
        """Note that the run steps back or repeats a round; its state has what was said before.

        A client that was included may be suspected now, so that is not said again.
        """
        last = {one.client: one for one in self._changes}
        self._keep(
            [
                one
                for one in self._changes
                if one.round >= self._next_round or (one.excluded and last[one.client] is one)
            ]
        )

    def take(self) -> tuple[str, ...]:
        """Return what was said since the last call, each with its time."""
        given, self._given = self._given, []
        return tuple(given)

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        command, client = request.get("command"), request.get("client")
        if command in OF_THE_RUN and client is None:
            text = self._of_run(command)
        elif command in OF_A_CLIENT and type(client) is int:  # true is none
            if not self._clients.is_known(client):
                return {"error": f"client {client}: the run has no client of this number"}
            found = self._of_client(command, client)
            if isinstance(found, Refused):
                excluded = sorted(self.excluded)
                return {"error": f"client {client}: {found.why}", "excluded": excluded}
            text = found
        else:
            return {"error": "the server does not know this command"}
        words = command if client is None else f"{command} {client}"
        self._given.append(f"{timestamp(time.time())} {words}")
        log.warning("operator", "operator: {command}: {text}", command=words, text=text)
        state = {"paused": self.paused, "excluded": sorted(self.excluded)}
        return {"command": command, "client": client, "text": text, **state}

    def _of_run(self, command: str) -> str:
        if command == "stop":
            self._stops = True
            return "the server ends, and fedmx resume continues the run"
        self.paused = command == "pause"
        self._save()
        if self.paused:
            return "the round under way ends, and no other begins"
        return "rounds go on"

    def _of_client(self, command: str, client: int) -> str | Refused:
        if command == "kick":
            if not self._clients.kick(client, "disconnected by the operator"):
                return Refused("is not connected")
            return f"client {client} was disconnected, and may come back for a later round"
        excludes = command == "exclude"
        if excludes == (client in self.excluded):
            return Refused("is excluded already" if excludes else "is not excluded")
        if excludes and not self._clients.would_suffice(len(self.excluded) + 1):
            return Refused("too few clients would be left for logic.min_updates")
        self._keep([*self._changes, Change(client, excludes, self._next_round)])
        if not excludes:
            del self.excluded[client]
            return f"client {client} may be asked again from round {self._next_round} on"
        self.excluded[client] = REASON
        self._clients.leave_out(client, REASON)
        return f"client {client} is not asked any more"

    def _keep(self, changes: list[Change]) -> None:
        if changes != self._changes:
            self._changes = changes
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        changes = [asdict(one) for one in self._changes]
        try:
            write_document(self._path, {"paused": self.paused, "changes": changes})
        except OSError as error:
            log.warning(
                "operator_not_written",
                "{reason}; a resumed server will not know it",
                reason=cannot_write(self._path, error),
            )


@dataclass(frozen=True)
class Refused:
    """Why an order is not carried out."""

    why: str
