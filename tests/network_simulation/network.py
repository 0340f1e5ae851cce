"""A network in memory, with delays, outages, slow links and broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.network_simulation.loop import Loop
from tests.network_simulation.scheduler import Scheduler
from tests.network_simulation.sockets import Host, ListeningSocket, Socket

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
        when_s = self.arrival_s(receiver.peer, 1)
        self._after(when_s, receiver.peer, "reset", receiver.break_off)

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
