"""The protocols that a TLS client asks for (ALPN, RFC 7301), read before TLS begins.

So one port can serve several processes: each connection is handed to one by the protocol that its
first record names (RFC 8446, section 4.1.2). Nothing is decrypted, and nothing is trusted: the
process that gets the connection verifies its certificate.
"""

from __future__ import annotations

HANDSHAKE, CLIENT_HELLO, ALPN = 22, 1, 16
MOST_BYTES = 1 << 14
"""Of a first record; a client's hello is a few hundred bytes, or 2 KiB with a post-quantum key."""


class Malformed(ValueError):
    """The bytes are not the beginning of TLS."""


def protocols(received: bytes) -> tuple[str, ...] | None:
    """Return the protocols in a client's hello; None: more bytes are needed.

    Args:
        received: the first bytes of a connection.

    Raises:
        Malformed: they are not those of TLS, or longer than `MOST_BYTES`.
    """
    if not received or len(received) < 5:
        return None
    length = int.from_bytes(received[3:5], "big")
    if received[0] != HANDSHAKE or received[1] != 3 or not 4 <= length <= MOST_BYTES:
        raise Malformed("no record of a TLS handshake")
    if len(received) < 5 + length:
        return None
    try:
        return _in_hello(_Reader(received[5 : 5 + length]))
    except (IndexError, UnicodeDecodeError):
        raise Malformed("a client's hello that ends too early") from None


class _Reader:
    """Takes values of known lengths from bytes."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    def take(self, size: int) -> bytes:
        if len(self._left) < size:
            raise IndexError
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def part(self, size: int) -> _Reader:
        """Return what follows its own length, which has `size` bytes."""
        return _Reader(self.take(self.number(size)))

    @property
    def empty(self) -> bool:
        return not self._left


def _in_hello(record: _Reader) -> tuple[str, ...]:
    if record.number(1) != CLIENT_HELLO:
        raise Malformed("a handshake that begins without a client's hello")
    hello = record.part(3)
    hello.take(2 + 32)  # the version, and the random bytes
    for size in (1, 2, 1):  # the session, the cipher suites, the compressions
        hello.part(size)
    if hello.empty:
        return ()
    extensions = hello.part(2)
    while not extensions.empty:
        kind, content = extensions.number(2), extensions.part(2)
        if kind == ALPN:
            names, found = content.part(2), []
            while not names.empty:
                name = names.part(1)
                found.append(name._left.decode("ascii"))
            return tuple(found)
    return ()
