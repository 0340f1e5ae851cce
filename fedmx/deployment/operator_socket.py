"""The Unix socket in a run folder over which an operator tells a running server what to do.

A request and its answer are one line of JSON each. Only the owner of the folder can connect.
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
MOST_BYTES = 4096
REST_S = 0.05  # between two looks for requests: looking for each update would slow the round down
REQUEST_S = 1.0  # for a request, since the server does nothing else meanwhile
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
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                (self._folder / NAME).unlink(missing_ok=True)

    def poll(self) -> None:
        """Answer the requests that wait, if the last time was not just now."""
        if time.monotonic() < self._rests_until_s:
            return
        self._rests_until_s = time.monotonic() + REST_S
        while self._listening is not None:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # the command has ended
                connection.settimeout(REQUEST_S)
                connection.sendall(_line(self._answer(_read(connection))))


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
            connection.sendall(_line(request))
            found = _read(connection)
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


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _read(connection: socket.socket) -> dict[str, Any]:
    """Return a line of JSON; empty if it is none."""
    content = b""
    while not content.endswith(b"\n") and len(content) < MOST_BYTES:
        received = connection.recv(MOST_BYTES)
        if not received:
            break
        content += received
    with contextlib.suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {}
