"""The Unix socket in a run folder over which an operator tells a running server what to do.

A request is a line of JSON; its answer is JSON, after its length in bytes (8 bytes, big-endian).
Only the owner of the folder can connect. The server never waits for a connection: what has not come
is looked for at the next poll.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmx.errors import FedmxError
from fedmx.log import Log

log = Log("fedmx.server")
NAME = "control.sock"
OF_THE_RUN = ("pause", "resume", "stop")
OF_A_CLIENT = ("kick", "exclude", "include")
MOST_BYTES = 4096  # of a request
MOST_ANSWER_BYTES = 1 << 30
MOST_OPEN = 64  # connections at a time; others wait in the system's queue
REST_S = 0.05  # between two looks for requests: looking for each update would slow the round down
REQUEST_S = 1.0  # for a request, from its connection on
ANSWER_S = 60.0  # for the answer, which comes between two events of the server


class OperatorSocket:
    """Listens in a folder inside a with statement, and answers when it is polled.

    Args:
        folder: the run folder; a socket of a killed server is replaced.
        answer: returns the answer to a request.
    """

    def __init__(
        self, folder: Path, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        self._folder = folder
        self._answer = answer
        self._listening: socket.socket | None = None
        self._rests_until_s = -math.inf
        self._open: list[_Exchange] = []

    def __enter__(self) -> OperatorSocket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            (self._folder / NAME).unlink(missing_ok=True)
            os.fchmod(listening.fileno(), 0o600)
            with _address(self._folder) as address:
                listening.bind(address)
            listening.listen()
            listening.setblocking(False)
            self._listening = listening
        except OSError as error:  # a file system without sockets
            listening.close()
            log.warning(
                "no_operator_socket",
                "{path}: fedmx ctl does not work ({reason})",
                path=self._folder / NAME,
                reason=error.strerror,
            )
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in self._open:
            one.connection.close()
        self._open.clear()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                (self._folder / NAME).unlink(missing_ok=True)

    def poll(self) -> None:
        """Answer the requests that have come, if the last time was not just now."""
        now_s = time.monotonic()
        if self._listening is None or now_s < self._rests_until_s:
            return
        self._rests_until_s = now_s + REST_S
        with contextlib.suppress(OSError):  # nobody else waits
            while len(self._open) < MOST_OPEN:
                connection, _ = self._listening.accept()
                connection.setblocking(False)
                self._open.append(_Exchange(connection, now_s + REQUEST_S))
        for one in self._open:
            request = one.step()
            if request is not None:
                one.reply(self._answer(request))
            one.over |= now_s > one.until_s
            if one.over:
                one.connection.close()
        self._open = [one for one in self._open if not one.over]


class _Exchange:
    """A request and its answer, as far as they have come; no step of it waits.

    Attributes:
        connection: to the operator's command.
        until_s: when it is given up, by the monotonic clock.
        over: whether it has ended.
    """

    def __init__(self, connection: socket.socket, until_s: float) -> None:
        self.connection, self.until_s, self.over = connection, until_s, False
        self._received, self._left = b"", b""

    def step(self) -> dict[str, Any] | None:
        """Take what has come, or send what is left; return the request once it is complete."""
        try:
            if self._left:
                self._send()
                return None
            received = self.connection.recv(MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # the command has ended
            self.over = True
            return None
        self._received += received
        if not received or len(self._received) > MOST_BYTES:
            self.over = True
            return None
        return _decoded(self._received) if self._received.endswith(b"\n") else None

    def reply(self, answer: Mapping[str, Any]) -> None:
        """Begin to send the answer."""
        content = json.dumps(answer).encode()
        self._left = len(content).to_bytes(8, "big") + content
        self.until_s += ANSWER_S
        with contextlib.suppress(BlockingIOError):
            self._send()

    def _send(self) -> None:
        try:
            self._left = self._left[self.connection.send(self._left) :]
            self.over = not self._left
        except BlockingIOError:
            raise
        except OSError:
            self.over = True


def ask(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the server that runs in a folder.

    Raises:
        FedmxError: no server answers.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            with _address(folder) as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            size = int.from_bytes(_exactly(connection, 8), "big")
            found = _decoded(_exactly(connection, min(size, MOST_ANSWER_BYTES)))
        except TimeoutError:
            raise FedmxError(
                f"{folder}: the server did not answer within {ANSWER_S:.0f} s, as while it "
                "evaluates the model; try again"
            ) from None
        except OSError as error:
            raise FedmxError(
                f"{folder}: its server does not answer ({error.strerror}); fedmx status {folder} "
                "says whether it runs"
            ) from None
    if not found:
        raise FedmxError(f"{folder}: its server has ended; fedmx status {folder} says why")
    return found


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Yield the address of the socket, which may not be longer than 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return as many bytes, or fewer if the connection ends before."""
    content = bytearray()
    while len(content) < size:
        received = connection.recv(min(size - len(content), 1 << 16))
        if not received:
            break
        content += received
    return bytes(content)


def _decoded(content: bytes) -> dict[str, Any]:
    """Return a mapping in JSON; empty if it is none."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {}
