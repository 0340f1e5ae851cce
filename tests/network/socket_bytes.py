"""Counts the bytes between connections and their sockets, independently of sessions."""

import asyncio
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from layers.network.connection import Connection

_SENT: WeakKeyDictionary[object, int] = WeakKeyDictionary()
_RECEIVED: WeakKeyDictionary[object, int] = WeakKeyDictionary()


class CountedConnection(Connection):
    """A connection that counts the written and received bytes of its owner."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_CountedTransport(transport, self._owner))

    def buffer_updated(self, nbytes: int) -> None:
        _RECEIVED[self._owner] = _RECEIVED.get(self._owner, 0) + nbytes
        super().buffer_updated(nbytes)


class _CountedTransport:
    """A transport that counts written bytes."""

    def __init__(self, transport: asyncio.BaseTransport, owner: object) -> None:
        self._transport: Any = transport
        self._owner = owner

    def write(self, piece: bytes | memoryview) -> None:
        _SENT[self._owner] = _SENT.get(self._owner, 0) + len(piece)
        self._transport.write(piece)

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> None:
        pieces = list(pieces)
        _SENT[self._owner] = _SENT.get(self._owner, 0) + sum(len(piece) for piece in pieces)
        self._transport.writelines(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def count_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the bytes of all connections that listeners and connectors make from now on."""
    monkeypatch.setattr("layers.network.endpoint.Connection", CountedConnection)


def socket_bytes(owner: object) -> tuple[int, int]:
    """Return the bytes that the owner's connections have sent and received so far."""
    return _SENT.get(owner, 0), _RECEIVED.get(owner, 0)
