"""A port for a server that starts later."""

from __future__ import annotations

import contextlib
import random
import socket

BELOW_OUTGOING = range(20_000, 30_000)  # the system gives higher ones to outgoing connections


def free_port() -> int:
    """Return a port that is free, and that no outgoing connection gets before its server starts."""
    for port in random.SystemRandom().sample(BELOW_OUTGOING, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")
