"""Frames, messages and control messages."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.protocol.messages import CODEC
from layers.network import MessageCodec
from layers.network.control import CONTROL
from layers.network.errors import MalformedFrame, MalformedMessage
from layers.network.frames import (
    CHUNK_BYTES,
    HEADER_BYTES,
    MAX_CONTROL_BYTES,
    ChunkStart,
    Frame,
    FrameReader,
    frame,
)
from tests.fuzz.target import Target

PIECES = (1 << 30, 1, 3, 10, 64, 1000)


def read_frames(data: bytes) -> None:
    """Read frames, and check that they contain the same bytes."""
    size = PIECES[data[0] % len(PIECES)] if data else 1
    stream = data[1:]
    whole, error = _read_frames([stream])
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert _read_frames(pieces) == (whole, error)
    assert stream.startswith(whole)
    if error:
        raise MalformedFrame(error)


def _read_frames(pieces: Sequence[bytes]) -> tuple[bytes, str]:
    """Return all frames, encoded again, and the error that ended the reading."""
    reader = FrameReader()
    written = b""
    try:
        for piece in pieces:
            for part in reader.feed(piece):
                if isinstance(part, Frame):
                    assert len(part.payload) <= MAX_CONTROL_BYTES
                    written += frame(part.kind, part.stream, part.payload)
                elif isinstance(part, ChunkStart):
                    assert 0 < part.length <= CHUNK_BYTES
                    written += frame(part.kind, part.stream, bytes(part.length))[:HEADER_BYTES]
                else:
                    written += part.data
    except MalformedFrame as error:
        return written, str(error)
    return written, ""


FRAMES = Target("frames", read_frames, (MalformedFrame,))


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
