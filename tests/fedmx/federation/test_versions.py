"""A server serves sites of the minor version before, by the bytes that they send."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmx.federation.messages import Presence
from fedmx.version import __version__
from layers.network import GaveUp
from layers.network.frames import SIZE, Frame, FrameReader, Kind, Piece, frame
from tests.fedmx.federation.test_hostile_site import Site
from tests.fedmx.golden.write import FOLDER
from tests.fedmx.processes import PATIENCE_S
from tests.fedmx.standing import Standing, experiment

MAJOR, MINOR, *_ = __version__.split(".")


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


class KeptSite:
    """A site that knows the bytes which an earlier version sent, and nothing else.

    Args:
        standing: the federation.
    """

    def __init__(self, standing: Standing) -> None:
        host, _, port = standing.address.partition(":")
        raw = socket.create_connection((host, int(port)), PATIENCE_S)
        context: ssl.SSLContext = standing.certificates.client("bonn").context()
        self._socket = context.wrap_socket(raw, server_hostname=host)
        self._socket.settimeout(1.0)
        self._reader, self._stream = FrameReader(), 0
        self._parts: list[tuple[Kind, bytes]] = []
        self.until_frame(Kind.GREETING)
        self._socket.sendall(frame(Kind.HELLO, 0, kept("control", "hello-of-a-site")))
        self.until_frame(Kind.WELCOME)

    def send(self, name: str) -> None:
        data = kept("federation", name)
        self._stream += 1
        head = frame(Kind.MESSAGE, self._stream, SIZE.pack(len(data)))
        self._socket.sendall(head + frame(Kind.DATA, self._stream, data))

    def until_frame(self, kind: Kind) -> bytes:
        while True:
            found, content = self._next()
            if found is kind:
                return content

    def received(self) -> bytes:
        """The next message."""
        (size,) = SIZE.unpack(self.until_frame(Kind.MESSAGE))
        data = b""
        while len(data) < size:
            data += self.until_frame(Kind.DATA)
        return data

    def _next(self) -> tuple[Kind, bytes]:
        while not self._parts:
            try:
                received = self._socket.recv(1 << 16)
            except TimeoutError:  # a sign of life
                self._socket.sendall(frame(Kind.PING))
                continue
            assert received, "the server has ended the connection"
            for part in self._reader.feed(received):
                if isinstance(part, Frame | Piece):
                    content = part.payload if isinstance(part, Frame) else bytes(part.data)
                    self._parts.append((part.kind, content))
        return self._parts.pop(0)

    def close(self) -> None:
        self._socket.close()


def kept(kind: str, name: str) -> bytes:
    return (FOLDER / kind / f"{name}.bin").read_bytes()


def test_a_site_that_sends_what_an_earlier_version_sent_takes_part(standing: Standing) -> None:
    standing.serve()
    site = KeptSite(standing)
    site.send("presence")
    with standing.operator() as operator:
        text = experiment(clients=1)
        job = operator.submit(text)
        assert text.encode() in site.received()  # the offer
        site.send("job-reply")
        assert standing.when(operator, job, "running")["sites"] == ["bonn"]
        assert site.received() == kept("federation", "job-start")
        site.send("job-ended")
        assert site.received() == kept("federation", "job-stop")
        found = standing.over(operator, job)
        assert (found["state"], "own_hook" in found["reason"]) == ("failed", True)
    site.close()


@pytest.mark.parametrize(
    "version", [f"{MAJOR}.{int(MINOR) + 1}.0", f"{int(MAJOR) + 1}.{MINOR}.0", "9"]
)
def test_a_site_of_another_version_is_told_both(standing: Standing, version: str) -> None:
    standing.serve()
    site = Site(standing, "bonn")
    site.network.send(Presence(version, (), (), 1))
    reason = site.event(GaveUp).reason
    assert all(word in reason for word in ("bonn", version, __version__))
    site.close()
