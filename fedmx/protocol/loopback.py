"""A message encoded and decoded as on the wire, for simulations."""

from __future__ import annotations

from typing import TypeVar

from fedmx.protocol.messages import CODEC
from layers.network import wire_size

Message = TypeVar("Message")


def carried(message: Message) -> tuple[Message, int]:
    """Return the message as the other end receives it, and its bytes on the wire."""
    payload = CODEC.encode(message)
    received = CODEC.decode(bytearray().join(payload.buffers))
    return received, wire_size(payload.size)
