"""Messages for the network tests, and functions to exchange and await them."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Union

import numpy as np

from layers.network import (
    Backoff,
    ClientTLS,
    Connected,
    Connector,
    Event,
    ExpectedFile,
    Joined,
    Listener,
    MessageCodec,
)
from layers.network.control import CONTROL, Hello
from layers.network.events import Ended, SessionEvent, Verified
from layers.network.frames import Kind, frame
from layers.network.handshake import ClientSession, ServerSession
from layers.network.session import Session
from tests.network.conftest import Certificates

Value = Union[None, bool, int, float, str, bytes, np.ndarray, "dict[str, Value]"]


@dataclass(frozen=True)
class Inner:
    rate: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    round: int
    weights: np.ndarray
    inner: Inner = field(default_factory=lambda: Inner(0.5))
    slots: dict[str, dict[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Update:
    client: str
    accepted: bool
    loss: float | None = None
    counts: dict[int, int] = field(default_factory=dict)
    deltas: list[np.ndarray] = field(default_factory=list)
    note: bytes = b""


@dataclass(frozen=True)
class Note:
    text: str


CODEC = MessageCodec({1: Task, 2: Update, 3: Note})
QUICK = Backoff(first_s=0.01, longest_s=0.05)  # for clients that reconnect
E = TypeVar("E")


def await_event(end: Listener | Connector, kind: type[E], timeout_s: float = 60.0) -> E:
    """Take events until one of `kind`, and return it."""
    ends = time.monotonic() + timeout_s
    seen: list[Event] = []
    while (left := ends - time.monotonic()) > 0:
        event = end.next_event(left)
        if isinstance(event, kind):
            return event
        if event is not None:
            seen.append(event)
    raise AssertionError(f"no {kind.__name__}, but {seen}")


@contextlib.contextmanager
def joined(
    name: str = "client-1",
    *,
    tls: Certificates | None = None,
    token: bytes | None = None,
    into: Path | None = None,
    **settings: Any,
) -> Iterator[tuple[Listener, Connector]]:
    """A listener with these settings, and a client that has joined; `into`: the client's files."""
    of_server, of_client = (tls.server, tls.client(name)) if tls else (None, None)
    with Listener("127.0.0.1:0", CODEC, tls=of_server, token=token, **settings) as listener:
        client = Connector(
            listener.address, name, CODEC, tls=of_client, token=token, backoff=QUICK, files=into
        )
        with client:
            await_event(listener, Joined)
            await_event(client, Connected)
            yield listener, client


def exchange(
    client: ClientSession, server: ServerSession, *, now: float = 0.0, admit: bool = True
) -> tuple[list[SessionEvent], list[SessionEvent]]:
    """Carry bytes between two sessions until both are silent; return the events of each."""
    seen: tuple[list[SessionEvent], list[SessionEvent]] = ([], [])
    busy = True
    while busy:
        busy = False
        for source, target, events in ((client, server, seen[1]), (server, client, seen[0])):
            data = drained(source, now)
            busy = busy or bool(data)
            for event in target.receive_data(data, now) if data else ():
                events.append(event)
                if isinstance(event, Verified) and admit:
                    events += server.admit()
    return seen


def drained(session: Session, now: float = 0.0) -> bytes:
    """Return everything that a session has queued."""
    return b"".join(
        b"".join(pieces) for pieces in iter(lambda: session.data_to_send(1 << 20, now), [])
    )


def until(happened: Callable[[], object]) -> None:
    ends = time.monotonic() + 60.0  # only to fail
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.005)


def dial(listener: Listener, timeout_s: float = 20.0, buffer: int = 0) -> socket.socket:
    """Connect a bare socket; `buffer`: its receive buffer in bytes."""
    host, port = listener.address.rsplit(":", 1)
    raw = socket.socket()
    if buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    raw.settimeout(timeout_s)
    try:
        raw.connect((host, int(port)))
    except OSError:
        raw.close()
        raise
    return raw


def raw_session(
    listener: Listener, identity: str = "raw", buffer: int = 0, tls: ClientTLS | None = None
) -> Any:
    """Open a session by a bare socket, or by one with TLS."""
    raw = dial(listener, 60.0, buffer)
    if tls:
        raw = tls.context().wrap_socket(raw, server_hostname=listener.address.rpartition(":")[0])
    assert raw.recv(1 << 16)
    hello = Hello(1, identity, [], bytes(32), 1 << 30, 8, b"")
    raw.sendall(frame(Kind.HELLO, 0, bytes(CONTROL.encode(hello))))
    assert raw.recv(1 << 16)
    await_event(listener, Joined)
    return raw


def raw_connection(listener: Listener) -> socket.socket:
    """Connect with a bare socket that has read the greeting."""
    raw = dial(listener)
    assert raw.recv(1 << 16)
    return raw


def read_to_end(raw: socket.socket) -> bytes:
    """Read until the other end closes."""
    data = b""
    try:
        while part := raw.recv(1 << 16):
            data += part
    except ConnectionResetError:
        pass
    return data


def only_end(events: list) -> Ended:
    (ended,) = [event for event in events if isinstance(event, Ended)]
    return ended


def expected(source: Path, name: str) -> ExpectedFile:
    content = source.read_bytes()
    return ExpectedFile(name, len(content), hashlib.sha256(content).digest())
