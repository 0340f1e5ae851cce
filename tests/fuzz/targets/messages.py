"""Messages and the words of control: bytes are one message of the table, or an error."""

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
        # What was read is a value like any other: it is written, and read again as it is.
        written = bytes(codec.encode(message))
        assert bytes(codec.encode(codec.decode(written))) == written

    name = "messages" if codec is CODEC else "control"
    return Target(name, read, (MalformedMessage,))


MESSAGES = reader(CODEC)
WORDS = reader(CONTROL)
