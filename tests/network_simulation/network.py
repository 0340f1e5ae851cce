"""A network in memory: delays, outages, slow links, broken connections, and its sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import AF_INET
from typing import Any

from tests.network_simulation.loop import Loop
from tests.network_simulation.scheduler import Process, Scheduler

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

    family = AF_INET

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
                self._loop.call_exception_handler({"message": "in a protocol", "exception": error})
            self._force(error)


RETRIED_S = 0.3  # the longest delay of a packet after an outage


class Network:
    """All hosts and connections; the scheduler's seed draws their faults."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.hosts: dict[str, Host] = {}
        self.listening: dict[tuple[str, int], ListeningSocket] = {}
        self.servers: dict[str, Host] = {}
        self.sockets: list[Socket] = []
        self.transports: list[Socket] = []
        self._ports = 0
        self._made = 0

    def listen(self, address: tuple[str, int]) -> ListeningSocket:
        """Listen for the running process.

        Raises:
            OSError: the port is in use.
        """
        process = self.scheduler.process
        assert process is not None
        self.servers[process.name] = self.hosts[process.name]
        if address[1] == 0:
            self._ports += 1
            address = (address[0], 40_000 + self._ports)
        if address in self.listening:
            raise OSError(98, "Address already in use")
        socket = self.listening[address] = ListeningSocket(self, process, address)
        process.on_kill.append(socket.close)
        return socket

    async def connect(self, loop: Loop, address: tuple[str, int]) -> Socket:
        """Return the client's end of a new connection.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        here = self.hosts[loop.process.name]
        for _ in range(2):  # there and back
            while (away_s := self._away_s(here)) > 0:
                await asyncio.sleep(away_s)
            await asyncio.sleep(self.scheduler.draw.random() * here.delay_s)
        while any(host.without_power for host in self.servers.values()):
            await asyncio.sleep(1.0)
        there = self.listening.get(address)
        if there is None or not there.process.alive:
            raise ConnectionRefusedError(111, "Connection refused")
        number, self._made = self._made, self._made + 1
        port = 50_000 + number % 10_000
        place = f"10.0.{list(self.hosts).index(here.name)}.1"
        mine = Socket(self, loop.process, here, f"{here.name}/{number}", (place, port))
        other = self.hosts[there.process.name]
        theirs = Socket(self, there.process, other, f"{other.name}/{number}", address)
        mine.peer, theirs.peer = theirs, mine
        mine.peer_address, theirs.peer_address = theirs.address, mine.address
        self.sockets += [mine, theirs]
        for socket in (mine, theirs):
            socket.process.on_kill.append(socket.die)
        there.arrived(theirs)
        return mine

    def _away_s(self, *hosts: Host) -> float:
        return max(host.away_until_s for host in hosts) - self.scheduler.now_s

    def arrival_s(self, sender: Socket, size: int) -> float:
        """Return the arrival time of a packet that is sent now, if nothing happens."""
        ends = (sender.host, sender.peer.host)
        delay_s = self.scheduler.draw.random() * max(host.delay_s for host in ends)
        rate = min(host.bytes_per_s for host in ends)
        return max(self.scheduler.now_s + delay_s, sender._last_arrival_s) + size / rate

    def deliver(self, when_s: float, sender: Socket, data: bytes) -> None:
        """Deliver bytes."""
        self._after(when_s, sender, f"{len(data)} bytes", lambda: sender.peer.take(data))

    def send_finish(self, sender: Socket) -> None:
        """Signal the end of the stream, after everything that was sent."""
        when_s = max(self.arrival_s(sender, 1), sender._last_arrival_s)
        sender._last_arrival_s = when_s
        self._after(when_s, sender, "finish", sender.peer.finish)

    def send_reset(self, receiver: Socket) -> None:
        """Signal a reset connection."""
        self._after(self.arrival_s(receiver.peer, 1), receiver.peer, "reset", receiver.break_off)

    def _after(self, when_s: float, sender: Socket, label: str, call: Callable[[], None]) -> None:
        """Deliver something, after everything that this end has sent before."""
        sender.line.append(call)

        def arrive() -> None:
            away_s = self._away_s(sender.host, sender.peer.host)
            if away_s > 0:
                late_s = away_s + self.scheduler.draw.random() * RETRIED_S
                again_s = self.scheduler.now_s + late_s
                self.scheduler.at(again_s, None, f"{sender.name} {label} again", arrive)
            else:
                sender.line.popleft()()

        self.scheduler.at(when_s, None, f"{sender.name} {label}", arrive)

    # Faults

    def current(self, host: str) -> list[Socket]:
        """Return the open ends of connections at a host."""
        return [one for one in self.sockets if one.host.name == host and one.opened]

    def cut(self, socket: Socket) -> None:
        """Break a connection; both ends, one or none learn of it."""
        draw = self.scheduler.draw
        for end in (socket, socket.peer):
            kind = draw.choice(("reset", "finish", "deaf"))
            self.scheduler.note(f"{end.name} cut: {kind}")
            if kind == "reset":
                end.break_off()
            elif kind == "finish":
                end.finish()
            end.deaf = True

    def prune(self) -> None:
        """Forget connections that both ends have closed."""
        self.sockets = [one for one in self.sockets if one.opened or one.peer.opened]

    def open_bytes(self) -> Mapping[str, int]:
        """Return the buffered bytes of open sockets."""
        held = {one.name: len(one._out) + len(one._inbox) for one in self.sockets if one.opened}
        return {name: size for name, size in held.items() if size}
