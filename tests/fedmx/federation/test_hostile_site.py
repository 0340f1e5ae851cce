"""A federation goes on whatever a site or an operator with a certificate of its own sends."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmx.errors import FedmxError
from fedmx.experiment.sections import LOG_LINES
from fedmx.federation.messages import (
    ACCEPTED,
    CODEC,
    JobEnded,
    JobOffer,
    JobReply,
    JobStart,
    Presence,
    protocol_of,
)
from fedmx.federation.offers import LOOKS_AHEAD
from fedmx.protocol import messages as protocol
from fedmx.version import __version__
from layers.network import Connected, Connector, GaveUp, NotConnected, Received
from tests.fedmx.processes import PATIENCE_S, until
from tests.fedmx.standing import Standing, experiment

MINOR = ".".join(__version__.split(".")[:2])


class Site:
    """A site that says anything.

    Args:
        standing: the federation.
        name: in its certificate.
    """

    def __init__(self, standing: Standing, name: str) -> None:
        tls = standing.certificates.client(name)
        self.network = Connector(standing.address, name, CODEC, tls=tls)
        self.network.start()
        self.event(Connected)

    def event(self, kind: type) -> Any:
        while True:
            event = self.network.next_event(PATIENCE_S)
            assert event is not None
            if isinstance(event, kind):
                return event

    def received(self, kind: type) -> Any:
        while True:
            message = self.event(Received).message
            if isinstance(message, kind):
                return message

    def accept(self) -> str:
        """Accept the next job that is offered, and return its name once it begins."""
        offer = self.received(JobOffer)
        self.network.send(JobReply(offer.job, ACCEPTED, ""))
        return str(self.received(JobStart).job)

    def close(self) -> None:
        self.network.close(0.0)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


def test_a_site_that_was_left_out_of_a_job_cannot_end_it(standing: Standing) -> None:
    standing.serve()
    standing.site("bonn")
    mallory = Site(standing, "mallory")
    text = experiment(rounds=40) + "network: {wait_for: 1}\n"
    with standing.operator() as operator:
        job = operator.submit(text)
        mallory.network.send(Presence(__version__, (), (), 1))
        assert mallory.accept() == job
        log = standing.folder / "fed" / "jobs" / job / "log"
        until(lambda: log.exists() and "round 1/40" in log.read_text(), lambda: "no round 1")
        for _ in range(2):
            mallory.network.send(JobEnded(job, 2, "no"))
            mallory.close()
            mallory = Site(standing, "mallory")
            mallory.network.send(Presence(__version__, (job,), (), 1))
        found = standing.over(operator, job)
        mallory.close()
    assert found["state"] == "done", found


def test_a_site_that_accepts_and_does_not_come_holds_no_job_up(standing: Standing) -> None:
    standing.serve("--start-limit", "2")
    mallory = Site(standing, "mallory")
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1))
        assert mallory.accept() == job
        found = standing.over(operator, job)
        assert (found["state"], "mallory" in found["reason"]) == ("failed", True)
        standing.site("bonn")
        after = operator.submit(experiment(clients=1), ("bonn",))
        assert standing.over(operator, after)["state"] == "done"
        mallory.close()


@pytest.mark.parametrize("offset", [2**63, -(2**63), 2**63 - 1])
def test_a_reader_gets_an_answer_for_each_offset(standing: Standing, offset: int) -> None:
    server = standing.serve()
    with standing.operator() as operator:
        job = operator.submit(experiment())
        (standing.folder / "fed" / "jobs" / job / "log").write_text("one\n")
    with standing.operator("looks", "reader") as reader:
        assert not reader.order("log", job, offset)["over"], server.output


def test_a_flood_of_presence_ends_the_connection_and_not_the_log(standing: Standing) -> None:
    server = standing.serve()
    mallory = Site(standing, "mallory")
    with contextlib.suppress(NotConnected):  # it ends during the flood
        for _ in range(200):
            mallory.network.send(Presence(__version__, (), (), 1))
    assert "Presence" in mallory.event(GaveUp).reason
    mallory.close()
    assert server.output.count("mallory joined") == 1


def test_texts_of_sites_control_no_terminal(standing: Standing) -> None:
    server = standing.serve()
    mallory = Site(standing, "mallory")
    red = "\x1b[31mred\x1b]0;title\x07\u202e"
    mallory.network.send(Presence(f"{MINOR}.{red}", (), (red,), 1))
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1), ("mallory",))
        offer = mallory.received(JobOffer)
        mallory.network.send(JobReply(offer.job, "refused", red))
        assert red in standing.over(operator, job)["reason"]
        (standing.folder / "fed" / "jobs" / job / "log").write_text(f"{red}\n")
        to = ["--to", standing.address, "--certs", str(standing.certificates.folder)]
        shown = standing._start("shown", "jobs", *to)
        assert shown.code() == 0
    mallory.close()
    for output in (shown.output, server.output):
        assert "red" in output
        assert all(one.isprintable() or one == "\n" for one in output)


def test_jobs_that_no_site_takes_hold_no_other_up(standing: Standing) -> None:
    standing.serve()
    standing.site("bonn", "rounds: 2\n")
    with standing.operator() as operator:
        for _ in range(LOOKS_AHEAD):
            operator.submit(experiment(clients=1), ("nobody",))
        for _ in range(LOOKS_AHEAD):
            operator.submit(experiment(clients=1, rounds=3))  # bonn refuses them
        for _ in range(LOOKS_AHEAD):
            operator.submit(experiment(clients=2))  # bonn is alone
        job = operator.submit(experiment(clients=1))
        assert standing.over(operator, job)["state"] == "done"


def test_a_site_that_answers_no_offer_holds_no_job_up(standing: Standing) -> None:
    standing.serve()
    mallory = Site(standing, "mallory")
    with standing.operator() as operator:
        for _ in range(LOOKS_AHEAD):
            operator.submit(experiment(clients=1), ("mallory",))
        job = operator.submit(experiment(clients=1))
        standing.site("bonn")
        assert standing.over(operator, job)["state"] == "done"
    mallory.close()


@pytest.mark.parametrize("sites", [("bonn", "bonn"), ("bonn", "\x1b[31m"), ("bonn", "")])
def test_a_job_is_offered_to_sites_that_can_exist(
    standing: Standing, sites: tuple[str, ...]
) -> None:
    standing.serve()
    with standing.operator() as operator:
        with pytest.raises(FedmxError, match=r"clients: 2|identity"):
            operator.submit(experiment(), sites)
        assert operator.order("jobs")["all"] == 0


def test_a_stranger_to_a_job_is_refused_by_its_process(standing: Standing) -> None:
    standing.serve()
    for name in ("bonn", "ulm"):
        standing.site(name)
    with standing.operator() as operator:
        job = operator.submit(experiment(rounds=3000))
        log = standing.folder / "fed" / "jobs" / job / "log"
        until(lambda: log.exists() and "round 1/3000" in log.read_text(), lambda: "no round 1")
        tls = replace(standing.certificates.client("mallory"), protocol=protocol_of(job))
        for _ in range(20):
            network = Connector(standing.address, "mallory", protocol.CODEC, tls=tls)
            network.start()
            while not isinstance(event := network.next_event(PATIENCE_S), GaveUp):
                assert event is not None
            assert "mallory" in event.reason
            network.close(0.0)
        assert operator.order("job", job)["state"] == "running"
        operator.order("cancel", job)
        assert standing.over(operator, job)["reason"] == "cancelled"


def test_strangers_do_not_fill_the_log(standing: Standing) -> None:
    server = standing.serve()
    host, _, port = standing.address.partition(":")
    for _ in range(5 * LOG_LINES):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(100):
                    pass
    with standing.operator() as operator:
        assert operator.order("sites") == []
    assert 0 < server.output.count("127.0.0.1") - 1 <= LOG_LINES


def test_an_operator_hears_what_cannot_be(standing: Standing) -> None:
    standing.serve()
    to = ["--to", standing.address, "--certs", str(standing.certificates.folder)]
    (standing.folder / "one.yaml").write_text(experiment(clients=1))
    standing.operator("anna")  # makes the certificate
    with standing.operator() as operator:
        words = ["submit", "one.yaml", *to, "--as", "anna", "--sites", "zug"]
        submitted = standing._start("submit", *words)
        assert submitted.code() == 0
        assert "zug is not connected" in submitted.output
        operator.order("cancel", "000001")
        with pytest.raises(FedmxError, match="run folder"):
            operator.fetch("000001", standing.folder / "run", standing.folder / "received")
    standing.certificates.client("bonn")
    wrong = standing._start("wrong", "submit", "one.yaml", *to, "--as", "bonn")
    assert wrong.code() == 2
    assert "bonn is a site" in wrong.output


def test_a_stopped_server_goes_on_with_the_job_that_ran(standing: Standing) -> None:
    server = standing.serve()
    standing.site("bonn")
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1, rounds=30))
        log = standing.folder / "fed" / "jobs" / job / "log"
        until(lambda: log.exists() and "round 2/30" in log.read_text(), lambda: "no round 2")
    server.terminate()
    assert server.code() == 130
    standing.serve()
    with standing.operator() as operator:
        assert standing.over(operator, job)["state"] == "done"
