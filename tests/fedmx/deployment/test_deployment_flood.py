"""A client that sends as fast as it can costs the others no round, and the log few lines."""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Callable

import pytest

from fedmx.deployment import client_log
from fedmx.deployment.client_log import MOST_NAMES, OTHERS, WINDOW_S, ClientLog
from fedmx.log import Log
from fedmx.protocol.messages import CODEC, CannotTakePart, MissingAssets, Ready, Setup
from layers.compute.data.targets import Targets
from layers.logic import Offer
from layers.network.control import CONTROL, FileOffer
from layers.network.frames import SIZE, Kind, frame
from tests.fedmx.scripted import Scripted, fleet, honest, listening
from tests.network.conftest import Certificates

Made = Callable[[int], bytes]
LINES = 5


def messages(message: object) -> Made:
    data = bytes(CODEC.encode(message))

    def made(stream: int) -> bytes:
        return frame(Kind.MESSAGE, stream, SIZE.pack(len(data))) + frame(Kind.DATA, stream, data)

    return made


def file_offers(stream: int) -> bytes:
    return frame(Kind.FILE_OFFER, stream, bytes(CONTROL.encode(FileOffer("a", 1, bytes(32)))))


FLOODS: dict[str, Made] = {
    "small messages": messages(Offer(1, 9, 10, 1.0)),
    "CannotTakePart": messages(CannotTakePart(9, "let me in")),
    "file offers": file_offers,
    "assets that it lacks": messages(MissingAssets("run", 9, ("none",))),
    "ready again and again": messages(Ready("other", 9, 10, ())),
}


class Flooding(Scripted):
    """Sends the same thing for ever; connects again when it is disconnected."""

    made: Made
    connections = 0
    over_all = False

    def be_ready(self) -> Setup:
        while not self.over_all:
            streams = itertools.count(1)
            self.connections += 1
            try:
                while True:
                    self.raw(b"".join(self.made(next(streams)) for _ in range(200)))
            except OSError:  # it was disconnected
                self._socket.close()
            if not self.over_all:
                self.connect()
        return Setup("", "", "", 0, (), Targets("classes", 0))


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_costs_the_others_no_round_and_ends_in_disconnection(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    flooding = type("Kind", (Flooding,), {"made": staticmethod(FLOODS[kind])})
    server = listening(certificates, last=5, wait_for=2, log_lines=LINES)
    with caplog.at_level(logging.INFO, "fedmx.server"), server:
        flood = flooding(server.address, 9, certificates.client("client-9"), honest)
        with fleet(server, certificates, {0: honest, 1: honest}):
            rounds = []
            for round in server.rounds():
                rounds.append(round)
                if round.round < 5:
                    seen = flood.connections  # each round outlives a connection of the flood
                    while flood.connections <= seen:
                        server.network._sessions.next_event(0.1)
        flood.over_all = True
        flood.stop()
    assert [round.participants for round in rounds] == [(0, 1)] * 5
    assert flood.connections >= 4
    about = [text for text in caplog.messages if re.search(r"client[- ]9\b", text)]
    assert 0 < len(about) <= 2 * (LINES + 1)  # of the client, and of its address
    assert len([reason for round in rounds for reason in round.rejected_connections]) <= 20 * 5


class Clock:
    """The module's `time`, as far as it needs it."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client_log, "time", clock)
    return clock


def test_a_client_has_so_many_lines_a_minute_and_the_rest_is_counted(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = ClientLog(Log("fedmx.test"), 3)
    with caplog.at_level(logging.INFO, "fedmx.test"):
        for number in range(4214):
            log.info("client 7", "note", "client 7: line {number}", number=number)
        log.warning("client 8", "note", "client 8: {text}", text="100 % of %s {x}")
        assert caplog.messages == [
            *(f"client 7: line {n}" for n in range(3)),
            "client 8: 100 % of %s {x}",
        ]
        caplog.clear()
        clock.now_s += WINDOW_S - 0.001
        log.flush()
        assert caplog.messages == []
        clock.now_s += 0.001
        log.flush()
        assert caplog.messages == ["further lines about client 7 are left out: 4,211"]
        caplog.clear()
        log.info("client 7", "note", "client 7: again")
        log.flush(now=True)
        assert caplog.messages == ["client 7: again"]


def test_names_without_end_share_the_lines_of_one(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = ClientLog(Log("fedmx.test"), 1)
    with caplog.at_level(logging.INFO, "fedmx.test"):
        for number in range(MOST_NAMES + 50):
            log.info(f"10.0.{number // 256}.{number % 256}", "note", "no TLS")
        assert len(caplog.messages) == MOST_NAMES + 1
        log.flush(now=True)
    assert caplog.messages[-1] == f"further lines about {OTHERS} are left out: 49"


def test_a_server_that_is_closed_while_it_is_flooded_closes(certificates: Certificates) -> None:
    flooding = type("Kind", (Flooding,), {"made": staticmethod(FLOODS["small messages"])})
    server = listening(certificates, wait_for=1)
    closed = threading.Event()

    def run() -> None:
        with server, fleet(server, certificates, {0: honest}):
            list(server.rounds())
        closed.set()

    with server:
        flood = flooding(server.address, 9, certificates.client("client-9"), honest)
        thread = threading.Thread(target=run)
        thread.start()
        assert closed.wait(60)
        thread.join()
        flood.over_all = True
    flood.stop()
