"""Both ends of a session: on any input a session answers, ends, or waits for more.

The first byte of an input selects the size of the pieces, whether the first frame arrives alone (a
client waits for the answer), and whether message bytes go straight into their memory, as in a
connection.
"""

from __future__ import annotations

from fedmx.protocol.messages import CODEC, Finished
from layers.network.control import FileAccept, FileFrame
from layers.network.errors import TransferError
from layers.network.events import Arrived, Ended, Opened, SessionEvent, Verified
from layers.network.frames import HEADER_BYTES, FrameReader
from layers.network.handshake import ClientSession, ServerSession
from layers.network.inbox import FEATURE, PartialMessage
from layers.network.limits import Limits
from layers.network.outbox import OutgoingFile
from layers.network.session import Session, State
from tests.fuzz.target import MIB, Target

AT_ONCE, IN_PLACE = 64, 128
LIMITS = Limits(max_message_bytes=MIB, max_streams=4)
PIECES = (1 << 30, 1, 7, 10, 64, 999)
FEATURES = frozenset({"files", FEATURE})
PARTING = CODEC.encode(Finished("the run is over"))
BROKEN_AT = 9  # bytes of the same message received on an earlier connection
KNOWN_FILE = b"\x00" * 3000


class Refused(Exception):
    """The session has ended because of the input."""


def read_as_server(data: bytes) -> None:
    """Pass a client's bytes to a server's session."""
    session = ServerSession(CODEC, 0.0, limits=LIMITS, features=FEATURES)
    _drive(session, data)


def read_as_client(data: bytes) -> None:
    """Pass a server's bytes to a client's session."""
    session = ClientSession("client-7", CODEC, 0.0, limits=LIMITS, features=FEATURES)
    _drive(session, data)


def _drive(session: Session, data: bytes) -> None:
    how, stream = (data[0], memoryview(data)[1:]) if data else (0, memoryview(b""))
    size, at_once, direct = PIECES[how % 8 % len(PIECES)], bool(how & AT_ONCE), bool(how & IN_PLACE)
    now, sent, place = 0.0, 0, 0
    ended: Ended | None = None
    while True:
        first = HEADER_BYTES + int.from_bytes(stream[6:HEADER_BYTES], "big")
        alone = not at_once and place < first
        piece = stream[place : min(place + size, first) if alone else place + size]
        now += 0.001
        room = session.receive_buffer() if direct else None
        if not piece:
            events = session.receive_eof()
        elif room is not None:
            piece = piece[: len(room)]
            room[: len(piece)] = piece
            events = session.buffer_filled(len(piece), now)
        else:
            events = session.receive_data(piece, now)
        for event in events:
            assert ended is None, f"{event} after {ended}"
            _answer(session, event)
            if isinstance(event, Ended):
                ended = event
        sent += _drain(session, now)
        assert sent <= 2 * place + 3 * len(KNOWN_FILE) + 64 * 1024, "answers without end"
        if not piece or ended is not None:
            break
        place += len(piece)
    assert session.state is State.CLOSING
    assert ended is not None
    for text in (ended.reason, ended.code):
        assert text.isprintable(), f"not one line: {text!r}"
    if ended.code not in ("lost", "goodbye"):
        raise Refused(ended.reason)


def _answer(session: Session, event: SessionEvent) -> None:
    """Handle an event like the owner of a session."""
    match event:
        case Verified():
            assert isinstance(session, ServerSession)
            if session.state is State.DECIDING:  # unless further bytes have ended it
                for opened in session.admit():
                    _answer(session, opened)
        case Opened():
            session.expect([broken_off()])
            session.offer_file("known", len(KNOWN_FILE), bytes(32))
            session.send_message(PARTING)
        case FileFrame(_, stream, FileAccept()):
            session.start_file(OutgoingFile(stream, len(KNOWN_FILE), 0, _known), 0)
        case Arrived(message, wire_bytes):
            assert wire_bytes > CODEC.encode(message).size
        case _:
            pass


def broken_off() -> PartialMessage:
    """Return the part of a message from before this session."""
    return PartialMessage(memoryview(bytearray(bytes(PARTING))), BROKEN_AT)


def _known(offset: int, size: int) -> bytes:
    if offset + size > len(KNOWN_FILE):
        raise TransferError("the file has become shorter")
    return KNOWN_FILE[offset : offset + size]


def _drain(session: Session, now: float) -> int:
    """Take everything to send, check that it consists of frames, and return its size."""
    sent = b""
    while pieces := session.data_to_send(MIB, now):
        sent += b"".join(pieces)
    reader = FrameReader()
    for _ in reader.feed(sent):
        pass
    assert reader.between_frames
    return len(sent)


SERVER = Target("server-session", read_as_server, (Refused,))
CLIENT = Target("client-session", read_as_client, (Refused,))
