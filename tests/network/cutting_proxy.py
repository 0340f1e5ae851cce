"""A TCP proxy that counts the bytes of each connection and cuts it where a test says."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import termios
import threading
import time
from dataclasses import dataclass, field

from layers.network import Listener


@dataclass
class Passed:
    """The bytes of one connection that went up (to the listener) and down."""

    up: int = 0
    down: int = 0


@dataclass
class CuttingProxy:
    """Stands before a listener; connection i is cut when `cuts[i]` bytes have passed one way.

    Attributes:
        cuts: the way and the bytes, for the first connections; the others are not cut.
        silent: whether only the client sees the cut, as when a router forgets a connection.
        connections: what passed, by connection.
    """

    listener: Listener
    cuts: list[tuple[str, int]] = field(default_factory=list)
    silent: bool = False
    connections: list[Passed] = field(default_factory=list)

    def __enter__(self) -> CuttingProxy:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._sockets:
            _end(one)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                host, port = self.listener.address.rsplit(":", 1)
                far = socket.create_connection((host, int(port)))
                passed, number = Passed(), len(self.connections)
                way, most = self.cuts[number] if number < len(self.cuts) else ("", 0)
                self.connections.append(passed)
                self._sockets += [near, far]
                for name, source, target in (("up", near, far), ("down", far, near)):
                    left = most if name == way else None
                    arguments = (passed, name, source, target, left, near, far)
                    threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(
        self,
        passed: Passed,
        way: str,
        source: socket.socket,
        target: socket.socket,
        left: int | None,
        near: socket.socket,
        far: socket.socket,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                target.sendall(data)
                setattr(passed, way, getattr(passed, way) + len(data))
                if left == 0:
                    _await_arrival(target)
                    break
        _end(near)
        if not (self.silent and left == 0):
            _end(far)


def _await_arrival(one: socket.socket) -> None:
    """Wait until the other end's kernel has all that was sent on a connection."""
    waiting = bytes(4)
    while any(waiting := fcntl.ioctl(one, termios.TIOCOUTQ, waiting)):
        time.sleep(0.001)


def _end(one: socket.socket) -> None:
    """End a connection; what was sent on it before still arrives."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
