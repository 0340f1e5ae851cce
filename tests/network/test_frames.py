"""Frames: splits do not matter, and sizes are exact."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import MalformedFrame, wire_size
from layers.network.frames import (
    CHUNK_BYTES,
    CHUNKED,
    HEADER,
    HEADER_BYTES,
    KINDS,
    MAX_CONTROL_BYTES,
    ChunkStart,
    Frame,
    FrameReader,
    Kind,
    Meter,
    Piece,
)
from layers.network.outbox import Outbox
from layers.network.payload import Payload

frames = st.lists(
    st.tuples(
        st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=40)
    ),
    max_size=6,
)


def read(reader: FrameReader, data: bytes) -> list[tuple[Kind, int, bytes]]:
    """The frames in the bytes, with joined chunks."""
    found: list[tuple[Kind, int, bytes]] = []
    for part in reader.feed(data):
        match part:
            case Frame(kind, stream, payload):
                found.append((kind, stream, payload))
            case ChunkStart(kind, stream, _):
                found.append((kind, stream, b""))
            case Piece(kind, stream, piece):
                found.append((kind, stream, bytes(piece)))
    return found


def joined(parts: list[tuple[Kind, int, bytes]]) -> list[tuple[Kind, int, bytes]]:
    whole: list[tuple[Kind, int, bytes]] = []
    for kind, stream, data in parts:
        if kind in CHUNKED and data:
            whole[-1] = (kind, stream, whole[-1][2] + data)
        else:
            whole.append((kind, stream, data))
    return whole


@given(frames, st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(
    sent: list[tuple[Kind, int, bytes]], data: st.DataObject
) -> None:
    wire = b"".join(HEADER.pack(kind, 0, stream, len(body)) + body for kind, stream, body in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    reader = FrameReader()
    found = []
    for start, end in pairwise([0, *cuts, len(wire)]):
        found += read(reader, wire[start:end])
    assert joined(found) == sent
    assert reader.between_frames


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_frames_or_refused(data: bytes) -> None:
    reader = FrameReader()
    taken = 0
    try:
        for kind, _, body in read(reader, data):
            assert kind in KINDS.values()
            taken += len(body)
    except MalformedFrame:
        pass
    assert taken <= len(data)


@pytest.mark.parametrize(
    ("kind", "flags", "length"),
    [
        (0, 0, 0),
        (255, 0, 0),
        (Kind.PING, 1, 0),
        (Kind.HELLO, 0, MAX_CONTROL_BYTES + 1),
        (Kind.DATA, 0, 0),
        (Kind.DATA, 0, CHUNK_BYTES + 1),
        (Kind.FILE_DATA, 0, 2**32 - 1),
    ],
)
def test_a_wrong_header_is_refused_before_its_payload(kind: int, flags: int, length: int) -> None:
    with pytest.raises(MalformedFrame):
        list(FrameReader().feed(HEADER.pack(kind, flags, 0, length)))


@pytest.mark.parametrize(
    ("kind", "length"), [(Kind.HELLO, MAX_CONTROL_BYTES), (Kind.DATA, CHUNK_BYTES), (Kind.DATA, 1)]
)
def test_the_longest_and_the_shortest_allowed_payload_arrives(kind: Kind, length: int) -> None:
    sent = (kind, 3, bytes(range(256)) * (length // 256) + bytes(length % 256))
    wire = HEADER.pack(kind, 0, 3, length) + sent[2]
    assert joined(read(FrameReader(), wire)) == [sent]


@given(st.integers(1, 3 * CHUNK_BYTES + 1) | st.sampled_from([CHUNK_BYTES, 2 * CHUNK_BYTES]))
def test_wire_size_equals_the_bytes_written(size: int) -> None:
    meter = Meter()
    outbox = Outbox(meter)
    outbox.max_open_bytes, outbox.max_streams = 1 << 30, 4
    outbox.message(Payload((memoryview(bytes(size)),), size, "Test"))
    wire = b"".join(b"".join(pieces) for pieces in iter(lambda: outbox.take(100_000), []))
    assert len(wire) == wire_size(size) == meter.read().message_bytes_sent
    assert len(wire) - size >= HEADER_BYTES
