"""Messages and control messages: bytes decode to one message of the table, or fail."""

from __future__ import annotations

from fedmx.protocol.messages import CODEC
from layers.network import MessageCodec
from layers.network.control import CONTROL
from layers.network.errors import MalformedMessage
from tests.fuzz.target import Target


def reader(codec: MessageCodec) -> Target:
    """Return the target of a table of messages."""

    def read(data: bytes) -> None:
        message = codec.decode(data)
        # A decoded message can be encoded, and decodes again to the same.
        written = bytes(codec.encode(message))
        assert bytes(codec.encode(codec.decode(written))) == written

    name = "messages" if codec is CODEC else "control"
    return Target(name, read, (MalformedMessage,))


MESSAGES = reader(CODEC)
WORDS = reader(CONTROL)
