"""How many bytes a file takes on the wire, in both directions, without sending it."""

from __future__ import annotations

import hashlib

from layers.network.protocol.frames import CHUNK_BYTES, HEADER_BYTES
from layers.network.protocol.handshake import CONTROL, FileAccept, FileOffer, FileStart

DIGEST = hashlib.sha256().digest()  # any digest: all have one length


def file_wire_size(name: str, size: int) -> int:
    """Return the bytes of all frames of a file of `size` bytes, transferred at the first attempt.

    This is exactly what both ends together write for it, without TLS's own bytes: the offer, its
    acceptance, the start, the chunks, and the receiver's confirmation.
    """
    words = (FileOffer(name, size, DIGEST), FileAccept(0, DIGEST), FileStart(0))
    said = sum(HEADER_BYTES + CONTROL.encode(one).size for one in words)
    chunks = -(-size // CHUNK_BYTES)
    return said + chunks * HEADER_BYTES + size + HEADER_BYTES
