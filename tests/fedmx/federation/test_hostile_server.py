"""A site does what it has accepted, whatever a federation's server says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment
from fedmx.federation.messages import (
    CANNOT_TAKE_PART,
    CODEC,
    JobEnded,
    JobOffer,
    JobReply,
    JobStart,
    Presence,
)
from layers.network import Joined, Listener, Received
from tests.fedmx.processes import PATIENCE_S, until
from tests.fedmx.standing import Standing, experiment


class Server:
    """A server that says anything."""

    def __init__(self, standing: Standing) -> None:
        self.listener = Listener("127.0.0.1:0", CODEC, tls=standing.certificates.server)
        self.listener.start()
        standing.address = self.listener.address

    def received(self, kind: type) -> Any:
        while True:
            event = self.listener.next_event(PATIENCE_S)
            assert event is not None
            if isinstance(event, Received) and isinstance(event.message, kind):
                return event.message
            if isinstance(event, Joined):
                continue


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        yield found


@pytest.fixture
def server(standing: Standing) -> Iterator[Server]:
    found = Server(standing)
    yield found
    found.listener.close(0.0)


def offered(text: str, job: str = "000001") -> JobOffer:
    read = Experiment.parse(text, "experiment")
    return JobOffer(job, text, read.digest(), "mallory", b"")


def test_a_job_that_was_not_accepted_is_not_begun(standing: Standing, server: Server) -> None:
    site = standing.site("bonn", "rounds: 2\n")
    server.received(Presence)
    server.listener.send("bonn", JobStart("000001", 0))  # never offered
    server.listener.send("bonn", offered(experiment(rounds=3)))
    assert server.received(JobReply).reply == "refused"
    server.listener.send("bonn", JobStart("000001", 0))
    until(lambda: site.output.count("was not accepted") == 2, lambda: site.output)
    assert "begins as client" not in site.output
    # Another experiment than the digest says.
    other = JobOffer("000002", experiment(), offered(experiment(rounds=1)).digest, "mallory", b"")
    server.listener.send("bonn", other)
    assert server.received(JobReply).reply == "refused"


def test_an_accepted_job_begins_by_the_policy_of_then_and_at_the_site_that_accepted_it(
    standing: Standing, server: Server
) -> None:
    memory = str(standing.folder / "memory")
    site = standing.site("bonn", "", "--memory", memory)
    server.received(Presence)
    server.listener.send("bonn", offered(experiment()))
    assert server.received(JobReply).reply == "accepted"
    ulm = standing.site("ulm", "", "--memory", memory)
    server.received(Presence)
    server.listener.send("ulm", JobStart("000001", 0))
    until(lambda: "000001 was not accepted" in ulm.output, lambda: ulm.output)
    for policy, key in (("authors: [anna]\n", "authors"), ("experiments: [x]\n", "experiments")):
        site.terminate()
        site.code()
        site = standing.site("bonn", policy, "--memory", memory)
        server.received(Presence)
        server.listener.send("bonn", JobStart("000001", 0))
        ended = server.received(JobEnded)
        assert (ended.code, key in ended.reason) == (CANNOT_TAKE_PART, True)


@pytest.mark.parametrize("job", ["../../etc/passwd", "", "000001/x", "0" * 300])
def test_a_name_that_is_no_jobs_name_ends_the_site(
    standing: Standing, server: Server, job: str
) -> None:
    site = standing.site("bonn")
    server.received(Presence)
    server.listener.send("bonn", offered(experiment(), job))
    assert site.code() == 2
    assert "job" in site.output
    assert [*(standing.folder / "memory-bonn" / "jobs").iterdir()] == []
