"""The files that an end expects: it receives no other."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from layers.network.connection import Connection
from layers.network.errors import NotWanted, TransferError, UnexpectedFile
from layers.network.events import (
    Event,
    FileAccepted,
    FileCancelled,
    FileChunk,
    FileDone,
    FileEvent,
    FileFailed,
    FileOffered,
    FileReceived,
    FileRefused,
    FileSent,
    FileStarted,
)
from layers.network.files import Incoming, Outgoing
from layers.network.limits import Limits
from layers.network.outbox import OutgoingFile

MAX_WAITING = 64
"""How many offers of a connection may wait until it is known which files are expected."""


@dataclass(frozen=True)
class ExpectedFile:
    """A file that may be received: only with this name, size in bytes and SHA-256 (32 bytes)."""

    name: str
    size: int
    sha256: bytes


class ExpectedFiles:
    """The expected files by name, as soon as they are known."""

    def __init__(self) -> None:
        self._files: dict[str, ExpectedFile] | None = None

    def replace(self, files: Iterable[ExpectedFile]) -> None:
        """Expect these files and no other."""
        self._files = {file.name: file for file in files}

    def admits(self, offered: ExpectedFile, waiting: int) -> bool:
        """Return whether a file may be received now; if not, its offer must wait.

        Args:
            offered: what a peer offers.
            waiting: how many offers of this peer wait already.

        Raises:
            UnexpectedFile: it may never be received.
        """
        if self._files is None and waiting < MAX_WAITING:
            return False
        if (self._files or {}).get(offered.name) == offered:
            return True
        raise UnexpectedFile(
            f"the file {offered.name[:80]!r} of {offered.size} bytes with SHA-256 "
            f"{offered.sha256.hex()[:16]}... is offered, which was not announced"
        )


@dataclass
class Desk:
    """The transfers of one open connection, by stream.

    Attributes:
        peer: who is at the other end.
        folder: where files are received; None: nowhere.
        any_file: whether all that is offered is received, and not only what is expected.
        waiting: offers of which it is not known yet whether they are expected.
        incoming: files that are being received.
        outgoing: files that are offered or sent.
        accepted: how often the peer has accepted each of them.
        hashing: held by the one file of this connection that is hashed now.
    """

    peer: str
    folder: Path | None
    any_file: bool = False
    waiting: list[FileOffered] = field(default_factory=list)
    incoming: dict[int, Incoming] = field(default_factory=dict)
    outgoing: dict[int, Outgoing] = field(default_factory=dict)
    accepted: Counter[int] = field(default_factory=Counter)
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)


T = TypeVar("T")
MOST_ACCEPTED = 2  # times a file on one connection: again after what was kept had proved wrong


class Transfers:
    """Runs in the loop's thread; whole files are hashed and synced in other threads.

    One file of a connection is hashed at a time, and only as long as that connection is open.
    A file to send is remembered until its receiver has confirmed or refused it, and is offered
    again on every new connection with that peer. So an offer may come before this end knows which
    files it expects: it waits for `expect`.
    """

    def __init__(self, limits: Limits, report: Callable[[Event], None]) -> None:
        self._limits = limits
        self._report = report
        self._desks: dict[Connection, Desk] = {}
        self._pending: dict[str, dict[str, Outgoing]] = {}
        self._expected = ExpectedFiles()
        self._in_use: set[Path] = set()
        self._working: set[Incoming] = set()  # being hashed or synced in another thread now
        self._orphans: set[Incoming] = set()  # those of them whose connection has ended
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, connection: Connection, desk: Desk) -> None:
        """Offer what is still to be sent to the peer of a new connection."""
        self._desks[connection] = desk
        for outgoing in self._pending.get(desk.peer, {}).values():
            self._offer(connection, outgoing)

    def expect(self, files: Iterable[ExpectedFile]) -> None:
        """Receive these files from now on, and no other."""
        self._expected.replace(files)
        for connection, desk in list(self._desks.items()):
            waiting, desk.waiting = desk.waiting, []
            for offer in waiting:
                self.take(connection, offer)

    def ended(self, connection: Connection) -> None:
        """Close the files of a connection that is over; partial ones stay for the next."""
        desk = self._desks.pop(connection, None)
        if desk is not None:
            for stream in list(desk.incoming):
                self._release(desk, stream)

    def queue(self, peer: str, outgoing: Outgoing) -> None:
        """Send a file to a peer, now or when it is connected again."""
        self._pending.setdefault(peer, {})[outgoing.name] = outgoing
        for connection, desk in self._desks.items():
            if desk.peer == peer:
                self._offer(connection, outgoing)

    def busy(self) -> bool:
        """Return whether a file for a connected peer is not yet confirmed."""
        return any(self._pending.get(desk.peer) for desk in self._desks.values())

    def take(self, connection: Connection, event: FileEvent) -> None:
        """Act on a session's event about a file."""
        desk = self._desks.get(connection)
        if desk is None:
            return
        match event:
            case FileOffered():
                if desk.folder is None:  # at once, so that a flood of them is seen
                    self._decline(connection, desk, event, "files are not accepted here")
                elif self._may_receive(connection, desk, event):
                    self._spawn(self._receive(connection, desk, event, desk.folder))
            case FileStarted(stream, offset):
                self._guard(connection, desk, stream, lambda file: file.begin(offset))
            case FileChunk(stream, data):
                self._guard(connection, desk, stream, lambda file: file.write(data))
            case FileCancelled(stream, reason):
                self._fail_incoming(desk, stream, reason)
            case FileAccepted(stream) if stream in desk.outgoing:
                desk.accepted[stream] += 1
                if desk.accepted[stream] <= MOST_ACCEPTED:
                    self._spawn(self._send(connection, desk, event))
                else:  # the file is read through each time
                    self.unreadable(connection, stream, "it was accepted too often")
            case FileDone(stream):
                outgoing = self._settle(desk, stream)
                if outgoing is not None:
                    self._report(FileSent(desk.peer, outgoing.name, outgoing.size))
            case FileRefused(stream, reason):
                self._fail_outgoing(desk, stream, reason)

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None:
        """Give up a file whose reading failed, and tell the peer."""
        desk = self._desks.get(connection)
        if desk is not None:
            connection.session.cancel_file(stream, reason)
            self._fail_outgoing(desk, stream, reason)

    # Receiving

    def _may_receive(self, connection: Connection, desk: Desk, offer: FileOffered) -> bool:
        """Return whether a file is received now; whoever offers an unexpected one is refused."""
        if desk.any_file:
            return True
        try:
            offered = ExpectedFile(offer.name, offer.size, offer.sha256)
            if self._expected.admits(offered, len(desk.waiting)):
                return True
            desk.waiting.append(offer)
        except UnexpectedFile as error:
            connection.refuse(error)
        return False

    async def _receive(
        self, connection: Connection, desk: Desk, offer: FileOffered, folder: Path
    ) -> None:
        session = connection.session
        if connection not in self._desks:
            return  # it ended before this began, and would not release the file any more
        try:
            incoming = self._check(desk, offer, folder)
            while incoming.path in self._in_use:  # an older connection still has it open
                await asyncio.sleep(0.02)
                if connection not in self._desks:
                    return
            self._in_use.add(incoming.path)
            desk.incoming[offer.stream] = incoming
            async with desk.hashing:
                if offer.stream not in desk.incoming:
                    return
                found = await self._work(incoming, incoming.has_it_already)
                if offer.stream not in desk.incoming:
                    return
                if not found:
                    offset, sha256 = await self._work(incoming, incoming.resume)
        except NotWanted:
            return
        except TransferError as error:
            self._release(desk, offer.stream)
            if connection in self._desks:
                self._decline(connection, desk, offer, str(error))
                connection.flush()
            return
        if found:
            self._complete(connection, desk, offer.stream, incoming)
        elif offer.stream in desk.incoming:
            session.accept_file(offer.stream, offset, sha256)
            connection.flush()

    def _decline(self, connection: Connection, desk: Desk, offer: FileOffered, reason: str) -> None:
        connection.session.refuse_file(offer.stream, reason)
        self._report(FileFailed(desk.peer, offer.name[:80], reason))

    def _check(self, desk: Desk, offer: FileOffered, folder: Path) -> Incoming:
        if not 0 <= offer.size <= self._limits.max_file_bytes:
            raise TransferError(
                f"{offer.name[:80]!r} has {offer.size} bytes; max_file_bytes is "
                f"{self._limits.max_file_bytes}"
            )
        incoming = Incoming(
            folder, offer.name, offer.size, offer.sha256, lambda: offer.stream in desk.incoming
        )
        if any(other.path == incoming.path for other in desk.incoming.values()):
            raise TransferError(f"{offer.name!r} is being received already")
        return incoming

    def _guard(
        self,
        connection: Connection,
        desk: Desk,
        stream: int,
        step: Callable[[Incoming], bool],
    ) -> None:
        """Take one step with a file; if it fails, this transfer ends and nothing else."""
        incoming = desk.incoming.get(stream)
        if incoming is None:
            return  # refused already; what was sent before that is ignored
        try:
            complete = step(incoming)
        except TransferError as error:
            connection.session.refuse_file(stream, str(error))
            self._fail_incoming(desk, stream, str(error))
            return
        if complete:
            self._spawn(self._finish(connection, desk, stream, incoming))

    async def _finish(
        self, connection: Connection, desk: Desk, stream: int, incoming: Incoming
    ) -> None:
        try:
            right = await self._work(incoming, incoming.finish)
            if not right and incoming.restarted:
                incoming.discard()
                raise TransferError(f"{incoming.path.name}: its SHA-256 is not the offered one")
        except TransferError as error:
            self._release(desk, stream)
            if connection in self._desks:
                connection.session.refuse_file(stream, str(error))
                connection.flush()
                self._report(FileFailed(desk.peer, incoming.path.name, str(error)))
            return
        if right:
            self._complete(connection, desk, stream, incoming)
        elif connection in self._desks:
            incoming.restarted = True
            connection.session.accept_file(stream, 0, hashlib.sha256().digest())
            connection.flush()

    def _complete(
        self, connection: Connection, desk: Desk, stream: int, incoming: Incoming
    ) -> None:
        self._release(desk, stream)
        self._report(FileReceived(desk.peer, incoming.path, incoming.size, incoming.sha256.hex()))
        if connection in self._desks:
            connection.session.confirm_file(stream)
            connection.flush()

    def _fail_incoming(self, desk: Desk, stream: int, reason: str) -> None:
        incoming = desk.incoming.get(stream)
        if incoming is not None:
            self._release(desk, stream)
            self._report(FileFailed(desk.peer, incoming.path.name, reason))

    def _release(self, desk: Desk, stream: int) -> None:
        incoming = desk.incoming.pop(stream, None)
        if incoming in self._working:
            self._orphans.add(incoming)
        elif incoming is not None:
            incoming.close()
            self._in_use.discard(incoming.path)

    async def _work(self, incoming: Incoming, work: Callable[[], T]) -> T:
        """Do slow work with a file; close it afterwards if its connection has ended by then."""
        self._working.add(incoming)
        try:
            return await _beside(work)
        finally:
            self._working.discard(incoming)
            if incoming in self._orphans:
                self._orphans.discard(incoming)
                incoming.close()
                self._in_use.discard(incoming.path)

    # Sending

    def _offer(self, connection: Connection, outgoing: Outgoing) -> None:
        desk = self._desks[connection]
        stream = connection.session.offer_file(outgoing.name, outgoing.size, outgoing.sha256)
        desk.outgoing[stream] = outgoing
        connection.flush()

    async def _send(self, connection: Connection, desk: Desk, accepted: FileAccepted) -> None:
        stream, outgoing = accepted.stream, desk.outgoing.get(accepted.stream)
        if outgoing is None:
            return  # given up before this began

        def wanted() -> bool:
            return connection in self._desks and stream in desk.outgoing

        try:
            async with desk.hashing:
                if not wanted():
                    return
                start = partial(outgoing.start, accepted.offset, accepted.sha256, wanted)
                offset = await _beside(start)
        except NotWanted:
            return
        except TransferError as error:
            if wanted():
                self.unreadable(connection, stream, str(error))
                connection.flush()
            return
        if not wanted():
            return
        file = OutgoingFile(stream, outgoing.size, offset, outgoing.read)
        connection.session.start_file(file, offset)
        connection.flush()

    def _settle(self, desk: Desk, stream: int) -> Outgoing | None:
        """Forget and return a file that the peer has, or does not want."""
        outgoing = desk.outgoing.pop(stream, None)
        waiting = self._pending.get(desk.peer, {})
        if outgoing is not None and waiting.get(outgoing.name) is outgoing:
            del waiting[outgoing.name]
        return outgoing

    def _fail_outgoing(self, desk: Desk, stream: int, reason: str) -> None:
        outgoing = self._settle(desk, stream)
        if outgoing is not None:
            self._report(FileFailed(desk.peer, outgoing.name, reason))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _beside(work: Callable[[], T]) -> T:
    """Run slow work with a whole file in another thread, so that heartbeats go on."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
