"""Sockets in memory, which are also asyncio's transports, and their hosts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.network_simulation.loop import Loop
from tests.network_simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.network_simulation.network import Network

WINDOW_BYTES = 64 * 1024  # sent, but not yet read by the peer


@dataclass(eq=False)
class Host:
    """A machine's connection to the network.

    Attributes:
        name: the process that is on it.
        delay_s: the time that a packet takes, at most.
        bytes_per_s: what its line takes.
        away_until_s: nothing comes through before; TCP sends it again then.
        without_power: nobody answers; later it has forgotten its connections.
    """

    name: str
    delay_s: float = 0.01
    bytes_per_s: float = 1e7
    away_until_s: float = 0.0
    without_power: bool = False


class ListeningSocket:
    """The result of `socket.create_server`."""

    def __init__(self, network: Network, process: Process, address: tuple[str, int]) -> None:
        self._network = network
        self.process = process
        self.address = address
        self._waiting: deque[Socket] = deque()
        self._acceptor: asyncio.Future[Any] | None = None
        self.open = True

    def setblocking(self, flag: bool) -> None:
        """Do nothing."""

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self.open:
            self.open = False
            self._network.listening.pop(self.address, None)
            while self._waiting:
                self._waiting.popleft().reset()

    def arrived(self, socket: Socket) -> None:
        """Queue a connection to accept."""
        self._waiting.append(socket)
        if self._acceptor is not None and not self._acceptor.done():
            self._acceptor.set_result(None)

    async def accept(self, loop: Loop) -> Socket:
        while True:
            if not self.open:
                raise OSError(9, "Bad file descriptor")
            if self._waiting:
                return self._waiting.popleft()
            self._acceptor = loop.create_future()
            await self._acceptor


class Socket(asyncio.Transport):
    """One end of a connection: a socket, and asyncio's transport on it."""

    def __init__(
        self, network: Network, process: Process, host: Host, name: str, address: tuple[str, int]
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.host = host
        self.name = name
        self.address = address
        self.peer: Socket
        self.peer_address: tuple[str, int]
        self.opened = True  # for the operating system
        self.cut_after: int | None = None  # bytes that arrive before it is reset
        self.deaf = False  # nothing arrives any more
        self._loop: Loop | None = None
        self._protocol: Any = None
        self._out = bytearray()
        self._travelling = 0
        self._last_arrival_s = 0.0
        self.line: deque[Callable[[], None]] = deque()  # sent, but not arrived
        self._inbox = bytearray()
        self._finished = False  # the peer has sent its last byte
        self._told_finished = False
        self._closing = False
        self._reading = True
        self._read_planned = False
        self._pause = (64 * 1024, 16 * 1024)
        self._writing_paused = False

    # asyncio's transport

    def setsockopt(self, *option: object) -> None:
        """Do nothing."""

    setblocking = setsockopt

    def attach(self, loop: Loop, protocol: asyncio.BaseProtocol) -> None:
        """Give the socket to a loop."""
        self._loop, self._protocol = loop, protocol
        self.network.transports.append(self)
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._protocol.connection_made(self)
        if self.opened:
            self._plan_read()
        else:  # it was reset before it was accepted
            self._closing = True
            self._lost(ConnectionResetError(104, "Connection reset"))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer_address, "sockname": self.address}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        top = 64 * 1024 if high is None else high
        self._pause = (top, top // 4 if low is None else low)

    def write(self, data: Any) -> None:
        if self._closing or not self.opened:
            return
        self._out += data
        self._pump()
        if not self._writing_paused and len(self._out) > self._pause[0]:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._reading = False

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def resume_reading(self) -> None:
        self._reading = True
        self._plan_read()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._out:
                self._lose(None)

    def abort(self) -> None:
        self._force(None)

    def _force(self, error: Exception | None) -> None:
        if self._loop is not None and self._protocol is not None:
            self._out.clear()
            self._closing = True
            self._lose(error, reset=True)

    def _lose(self, error: Exception | None, reset: bool = False) -> None:
        """Close the socket now, and tell the protocol in the next turn."""
        if self.opened:
            self.opened = False
            if reset or self._inbox:
                self.network.send_reset(self.peer)
            else:
                self.network.send_finish(self)
            assert self._loop is not None
            self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        self._inbox.clear()
        if protocol is not None:
            protocol.connection_lost(error)

    # The operating system

    def die(self) -> None:
        """Close the socket of a killed process; without power, nobody learns of it."""
        self._loop = self._protocol = None
        if self.opened and not self.process.power:
            if self._inbox or self._out:
                self.network.send_reset(self.peer)
            else:
                self.network.send_finish(self)
        self.opened = False

    def reset(self) -> None:
        """Close the socket, and tell the peer."""
        if self.opened:
            self.opened = False
            self.network.send_reset(self.peer)

    def _pump(self) -> None:
        """Send as much as the window allows."""
        draw, now_s = self.network.scheduler.draw, self.network.scheduler.now_s
        while self._out:
            room = WINDOW_BYTES - self._travelling - len(self.peer._inbox)
            if room <= 0:
                break
            size = min(len(self._out), room)
            if size > 1 and draw.random() < 0.2:
                size = draw.randint(1, size)
            data = bytes(self._out[:size])
            del self._out[:size]
            self._travelling += size
            when_s = self.network.arrival_s(self, size)
            self._last_arrival_s = max(self._last_arrival_s, when_s, now_s)
            self.network.deliver(self._last_arrival_s, self, data)
        if self._protocol is not None:
            if self._writing_paused and len(self._out) <= self._pause[1]:
                self._writing_paused = False
                self._protocol.resume_writing()
            if self._closing and not self._out:
                self._lose(None)

    def take(self, data: bytes) -> None:
        """Receive bytes."""
        self.peer._travelling -= len(data)
        if not self.opened and not self.host.without_power:
            self.network.send_reset(self.peer)
        if self.deaf or not self.opened:
            return
        if self.cut_after is not None:
            kept = min(self.cut_after, len(data))
            self.cut_after -= kept
            data = data[:kept]
        self._inbox += data
        self._plan_read()
        if self.cut_after == 0:
            self.cut_after = None
            self.network.cut(self)

    def finish(self) -> None:
        """Handle the end of the stream."""
        if self.opened and not self.deaf:
            self._finished = True
            self._plan_read()

    def break_off(self) -> None:
        """Handle a reset."""
        if self.opened and not self.deaf:
            if self._loop is None:
                self.opened = False
            else:
                self._loop.call_soon(self._force, ConnectionResetError(104, "Connection reset"))

    def _plan_read(self) -> None:
        if self._loop is not None and self._protocol is not None and not self._read_planned:
            self._read_planned = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_planned = False
        if not self._reading or self._closing or self._protocol is None:
            return
        try:
            if self._inbox:
                buffer = self._protocol.get_buffer(-1)
                size = min(len(buffer), len(self._inbox))
                buffer[:size] = self._inbox[:size]
                del self._inbox[:size]
                self._protocol.buffer_updated(size)
                if self._inbox or self._finished:
                    self._plan_read()
                self.peer._pump()
            elif self._finished and not self._told_finished:
                self._told_finished = True
                if not self._protocol.eof_received():
                    self.close()
        except Exception as error:  # noqa: BLE001, as asyncio does
            if self._loop is not None:
                message = {"message": "in a protocol", "exception": error}
                self._loop.call_exception_handler(message)
            self._force(error)
