"""The memory that a connection with TLS keeps, asyncio's and OpenSSL's: small where many are.

asyncio has no way to say how large its buffers are, so this uses what is inside of it; where a
version of Python lacks these names, a connection takes more memory and does the same.
"""

from __future__ import annotations

import asyncio
from typing import Any

ALL_BYTES = 32 << 20  # what all connections of a loop read or write at a time, together
MOST_BYTES = 256 * 1024  # of one; as much as asyncio has for itself
LEAST_BYTES = 16 * 1024  # of one; the longest record of TLS


def bytes_at_a_time(connections: int) -> int:
    """Return how much each of some connections is to read or write at a time.

    OpenSSL's two buffers of a connection are a third larger than the most that was read and written
    at a time, ever after. So few connections get large buffers, which are faster, and many get
    small ones.
    """
    fitting = ALL_BYTES // max(connections, 1)
    return max(LEAST_BYTES, min(MOST_BYTES, 1 << (fitting.bit_length() - 1)))


def share(transport: asyncio.BaseTransport, shared: memoryview) -> None:
    """Let a transport receive what is encrypted into memory that its loop's connections share.

    Its own buffer, of 256 KiB, is dropped. Nothing happens to a transport without TLS. Sharing is
    safe because asyncio fills the memory and hands it to OpenSSL, which copies it, without a turn
    of the loop in between.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol.max_size = len(shared)
        protocol._ssl_buffer = protocol._ssl_buffer_view = shared
