"""File transfers of one endpoint: offers, resumption and verification over its sessions."""

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
from layers.network.control import FileAccept, FileFrame, FileOffer, FileReason, FileStart, clean
from layers.network.errors import NotWanted, TransferError, UnexpectedFile
from layers.network.events import Event, FileChunk, FileFailed, FileReceived, FileSent
from layers.network.files import Incoming, Outgoing
from layers.network.frames import Kind
from layers.network.limits import Limits
from layers.network.outbox import OutgoingFile

T = TypeVar("T")
MAX_WAITING = 64  # offers of a connection that wait until the expected files are known
MAX_ACCEPTED = 2  # times a file on one connection: once more if the kept bytes proved wrong


@dataclass(frozen=True)
class ExpectedFile:
    """A file that may be received: only with this name, size in bytes and SHA-256 (32 bytes)."""

    name: str
    size: int
    sha256: bytes


@dataclass(eq=False)
class PeerFiles:
    """The transfers of one connection, by stream.

    Attributes:
        connection: the connection.
        peer: the name of its peer.
        folder: where files are received; None: they are refused.
        any_file: whether every offered file is received, not only expected ones.
        waiting: offers that wait until the expected files are known.
        incoming: files that are being received.
        outgoing: files that are offered or being sent.
        accepted: how often the peer has accepted each of them.
        hashing: held while a file of this connection is hashed.
    """

    connection: Connection
    peer: str
    folder: Path | None
    any_file: bool = False
    waiting: list[tuple[int, FileOffer]] = field(default_factory=list)
    incoming: dict[int, Incoming] = field(default_factory=dict)
    outgoing: dict[int, Outgoing] = field(default_factory=dict)
    accepted: Counter[int] = field(default_factory=Counter)
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Transfers:
    """Runs in the loop's thread; files are hashed and synced in other threads.

    A connection hashes one file at a time, and only while it is open. A file to send is kept until
    its receiver has confirmed or refused it, and is offered on every new connection with that peer.
    So an offer may arrive before this end knows which files it expects: it waits for `expect`.
    """

    def __init__(self, limits: Limits, report: Callable[[Event], None]) -> None:
        self._limits = limits
        self._report = report
        self._open: dict[Connection, PeerFiles] = {}
        self._pending: dict[str, dict[str, Outgoing]] = {}
        self._expected: dict[str, ExpectedFile] | None = None
        self._in_use: set[Path] = set()
        self._working: set[Incoming] = set()  # being hashed or synced in another thread
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, files: PeerFiles) -> None:
        """Offer the pending files of the peer on its new connection."""
        self._open[files.connection] = files
        for outgoing in self._pending.get(files.peer, {}).values():
            self._offer(files, outgoing)

    def expect(self, expected: Iterable[ExpectedFile]) -> None:
        """Receive only these files from now on."""
        self._expected = {file.name: file for file in expected}
        for files in list(self._open.values()):
            waiting, files.waiting = files.waiting, []
            for stream, offer in waiting:
                self._offered(files, stream, offer)

    def ended(self, connection: Connection) -> None:
        """Close the files of a connection that is over; the next one resumes partial files."""
        files = self._open.pop(connection, None)
        if files is not None:
            for stream in list(files.incoming):
                self._release(files, stream)

    def queue(self, peer: str, outgoing: Outgoing) -> None:
        """Send a file to a peer, now or when it is connected again."""
        self._pending.setdefault(peer, {})[outgoing.name] = outgoing
        for files in self._open.values():
            if files.peer == peer:
                self._offer(files, outgoing)

    def drop(self, peer: str) -> None:
        """Forget the files for a peer that does not come back under this name."""
        self._pending.pop(peer, None)

    def busy(self) -> bool:
        """Return whether a file for a connected peer is unconfirmed."""
        return any(self._pending.get(files.peer) for files in self._open.values())

    def take(self, connection: Connection, event: FileFrame | FileChunk) -> None:
        """Handle a session's event about a file."""
        files = self._open.get(connection)
        if files is None:
            return
        match event:
            case FileChunk(stream, data):
                self._guard(files, stream, lambda file: file.write(data))
            case FileFrame(_, stream, FileOffer() as offer):
                self._offered(files, stream, offer)
            case FileFrame(_, stream, FileStart(offset)):
                self._guard(files, stream, lambda file: file.begin(offset))
            case FileFrame(_, stream, FileAccept() as accept) if stream in files.outgoing:
                files.accepted[stream] += 1
                if files.accepted[stream] <= MAX_ACCEPTED:
                    self._spawn(self._send(files, stream, accept))
                else:  # each time costs reading the whole file
                    self.unreadable(connection, stream, "it was accepted too often")
            case FileFrame(Kind.FILE_DONE, stream):
                outgoing = self._settle(files, stream)
                if outgoing is not None:
                    self._report(FileSent(files.peer, outgoing.name, outgoing.size))
            case FileFrame(Kind.FILE_REFUSED, stream, FileReason(reason)):
                self._fail_outgoing(files, stream, clean(reason))
            case FileFrame(Kind.FILE_CANCELLED, stream, FileReason(reason)):
                self._fail_incoming(files, stream, clean(reason))

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None:
        """Cancel a file that could not be read."""
        files = self._open.get(connection)
        if files is not None:
            connection.session.cancel_file(stream, reason)
            self._fail_outgoing(files, stream, reason)

    # Receiving

    def _offered(self, files: PeerFiles, stream: int, offer: FileOffer) -> None:
        if files.folder is None:  # at once, so that the event queue slows down a flood of offers
            self._decline(files, stream, offer, "files are not accepted here")
        elif files.any_file or (self._expected or {}).get(offer.name) == ExpectedFile(
            offer.name, offer.size, offer.sha256
        ):
            self._spawn(self._receive(files, stream, offer, files.folder))
        elif self._expected is None and len(files.waiting) < MAX_WAITING:
            files.waiting.append((stream, offer))
        else:
            error = UnexpectedFile(
                f"the file {offer.name[:80]!r} of {offer.size} bytes with SHA-256 "
                f"{offer.sha256.hex()[:16]}... was offered, but not announced"
            )
            files.connection.refuse(error)

    async def _receive(self, files: PeerFiles, stream: int, offer: FileOffer, folder: Path) -> None:
        if files.connection not in self._open:
            return
        try:
            incoming = self._check(files, stream, offer, folder)
            while incoming.path in self._in_use:  # an older connection still has it open
                await asyncio.sleep(0.02)
                if files.connection not in self._open:
                    return
            self._in_use.add(incoming.path)
            files.incoming[stream] = incoming
            async with files.hashing:
                if stream not in files.incoming:
                    return
                found = await self._work(files, stream, incoming, incoming.is_stored)
                if stream not in files.incoming:
                    return
                if not found:
                    offset, sha256 = await self._work(files, stream, incoming, incoming.resume)
        except NotWanted:
            return
        except TransferError as error:
            self._release(files, stream)
            if files.connection in self._open:
                self._decline(files, stream, offer, str(error))
                files.connection.flush()
            return
        if found:
            self._complete(files, stream, incoming)
        elif stream in files.incoming:
            files.connection.session.accept_file(stream, offset, sha256)
            files.connection.flush()

    def _decline(self, files: PeerFiles, stream: int, offer: FileOffer, reason: str) -> None:
        files.connection.session.refuse_file(stream, reason)
        self._report(FileFailed(files.peer, offer.name[:80], reason))

    def _check(self, files: PeerFiles, stream: int, offer: FileOffer, folder: Path) -> Incoming:
        if not 0 <= offer.size <= self._limits.max_file_bytes:
            raise TransferError(
                f"{offer.name[:80]!r} has {offer.size} bytes; max_file_bytes is "
                f"{self._limits.max_file_bytes}"
            )
        incoming = Incoming(
            folder, offer.name, offer.size, offer.sha256, lambda: stream in files.incoming
        )
        if any(other.path == incoming.path for other in files.incoming.values()):
            raise TransferError(f"{offer.name!r} is being received already")
        return incoming

    def _guard(self, files: PeerFiles, stream: int, step: Callable[[Incoming], bool]) -> None:
        """Take one step with a file; if it fails, only this transfer ends."""
        incoming = files.incoming.get(stream)
        if incoming is None:
            return  # refused already; chunks sent before the refusal are ignored
        try:
            complete = step(incoming)
        except TransferError as error:
            files.connection.session.refuse_file(stream, str(error))
            self._fail_incoming(files, stream, str(error))
            return
        if complete:
            self._spawn(self._finish(files, stream, incoming))

    async def _finish(self, files: PeerFiles, stream: int, incoming: Incoming) -> None:
        if files.incoming.get(stream) is not incoming:
            return  # released meanwhile
        try:
            right = await self._work(files, stream, incoming, incoming.finish)
            if not right and incoming.restarted:
                incoming.discard()
                raise TransferError(f"{incoming.path.name}: its SHA-256 is not the offered one")
        except TransferError as error:
            self._release(files, stream)
            if files.connection in self._open:
                files.connection.session.refuse_file(stream, str(error))
                files.connection.flush()
                self._report(FileFailed(files.peer, incoming.path.name, str(error)))
            return
        if right:
            self._complete(files, stream, incoming)
        elif files.connection in self._open:
            incoming.restarted = True
            files.connection.session.accept_file(stream, 0, hashlib.sha256().digest())
            files.connection.flush()

    def _complete(self, files: PeerFiles, stream: int, incoming: Incoming) -> None:
        self._release(files, stream)
        self._report(FileReceived(files.peer, incoming.path, incoming.size, incoming.sha256.hex()))
        if files.connection in self._open:
            files.connection.session.confirm_file(stream)
            files.connection.flush()

    def _fail_incoming(self, files: PeerFiles, stream: int, reason: str) -> None:
        incoming = files.incoming.get(stream)
        if incoming is not None:
            self._release(files, stream)
            self._report(FileFailed(files.peer, incoming.path.name, reason))

    def _release(self, files: PeerFiles, stream: int) -> None:
        incoming = files.incoming.pop(stream, None)
        if incoming is not None and incoming not in self._working:
            self._close(incoming)

    async def _work(
        self, files: PeerFiles, stream: int, incoming: Incoming, work: Callable[[], T]
    ) -> T:
        """Do slow work with a file; close the file afterwards if it was released meanwhile."""
        self._working.add(incoming)
        try:
            return await _in_thread(work)
        finally:
            self._working.discard(incoming)
            if files.incoming.get(stream) is not incoming:
                self._close(incoming)

    def _close(self, incoming: Incoming) -> None:
        incoming.close()
        self._in_use.discard(incoming.path)

    # Sending

    def _offer(self, files: PeerFiles, outgoing: Outgoing) -> None:
        session = files.connection.session
        stream = session.offer_file(outgoing.name, outgoing.size, outgoing.sha256)
        files.outgoing[stream] = outgoing
        files.connection.flush()

    async def _send(self, files: PeerFiles, stream: int, accept: FileAccept) -> None:
        outgoing = files.outgoing.get(stream)
        if outgoing is None:
            return  # cancelled meanwhile

        def wanted() -> bool:
            return files.connection in self._open and stream in files.outgoing

        try:
            async with files.hashing:
                if not wanted():
                    return
                start = partial(outgoing.start, accept.offset, accept.sha256, wanted)
                offset = await _in_thread(start)
        except NotWanted:
            return
        except TransferError as error:
            if wanted():
                self.unreadable(files.connection, stream, str(error))
                files.connection.flush()
            return
        if wanted():
            file = OutgoingFile(stream, outgoing.size, offset, outgoing.read)
            files.connection.session.start_file(file, offset)
            files.connection.flush()

    def _settle(self, files: PeerFiles, stream: int) -> Outgoing | None:
        """Forget and return a file that the peer has confirmed or refused."""
        outgoing = files.outgoing.pop(stream, None)
        pending = self._pending.get(files.peer, {})
        if outgoing is not None and pending.get(outgoing.name) is outgoing:
            del pending[outgoing.name]
        return outgoing

    def _fail_outgoing(self, files: PeerFiles, stream: int, reason: str) -> None:
        outgoing = self._settle(files, stream)
        if outgoing is not None:
            self._report(FileFailed(files.peer, outgoing.name, reason))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run slow work with a whole file in another thread, so that heartbeats continue."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
