"""Attacks on a federation by strangers, a site and an operator: jobs go on, and names stay safe."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedmx.errors import FedmxError
from fedmx.federation import messages
from fedmx.federation.messages import CODEC, JobEnded, JobReply, JobStart, Presence, protocol_of
from fedmx.federation.orders import ORDERS
from fedmx.version import __version__
from layers.network import (
    Connected,
    Connector,
    Disconnected,
    GaveUp,
    MessageCodec,
    NotConnected,
    Sent,
)
from layers.network.address import raise_file_limit
from layers.network.listener import MOST_CONNECTIONS
from tests.fedmx.federation.test_hostile_site import Site
from tests.fedmx.processes import PATIENCE_S, until
from tests.fedmx.standing import Standing, experiment

HALF_OPEN = 1500


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    with Standing(tmp_path) as found:
        server = found.serve("--at-once", "2")
        yield found
        assert "Traceback" not in server.output


def refused(standing: Standing, name: str, certificate: str, codec: MessageCodec = CODEC) -> str:
    """Why the server refuses one that claims a name with the certificate of another."""
    tls = standing.certificates.client(certificate)
    with Connector(standing.address, name, codec, tls=tls) as network:
        while not isinstance(event := network.next_event(PATIENCE_S), GaveUp):
            assert event is not None
        return event.reason


def ends_in_time(standing: Standing, site: str = "bonn") -> None:
    """Check that a job at a site is done, whatever happens meanwhile."""
    with standing.operator() as operator:
        job = operator.submit(experiment(clients=1), (site,))
        assert standing.over(operator, job)["state"] == "done"


def test_a_name_is_that_of_its_certificate(standing: Standing) -> None:
    bonn = standing.site("bonn")
    bonn.line("connected to")
    standing.operator("anna")
    for name in ("bonn", "anna", "server"):
        assert "mallory" in refused(standing, name, "mallory")
    ends_in_time(standing)
    assert bonn.output.count("connected to") == 1


@pytest.mark.parametrize("kind", ["replies", "ends"])
def test_a_flood_of_messages_holds_no_job_up(standing: Standing, kind: str) -> None:
    standing.site("bonn")
    mallory = Site(standing, "mallory")
    mallory.network.send(Presence(__version__, (), (), 1 << 40))
    over = threading.Event()

    def flood() -> None:
        waiting = 0
        while not over.is_set():
            job = f"{waiting % 3:06}"
            one = JobReply(job, "accepted", "") if kind == "replies" else JobEnded(job, 1, "no")
            with contextlib.suppress(NotConnected):
                mallory.network.send(one)
                waiting += 1
            while waiting > 1000 and not over.is_set():
                waiting -= isinstance(mallory.network.next_event(0.1), Sent)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        ends_in_time(standing)
    finally:
        over.set()
        thread.join()
        mallory.close()


def test_a_message_that_is_too_large_ends_its_connection_alone(standing: Standing) -> None:
    standing.site("bonn")
    boundless = MessageCodec(dict(enumerate(messages._ALL, 1)))
    tls = standing.certificates.client("mallory")
    for large in (
        Presence("x" * (messages.MOST_BYTES + 1), (), (), 1),
        Presence(__version__, ("x",) * (messages.MOST_VALUES + 1), (), 1),
    ):
        with Connector(standing.address, "mallory", boundless, tls=tls) as network:
            while not isinstance(event := network.next_event(PATIENCE_S), Connected):
                assert event is not None
            network.send(large)
            while not isinstance(event := network.next_event(PATIENCE_S), GaveUp | Disconnected):
                assert event is not None
    ends_in_time(standing)


def hello(protocol: str) -> bytes:
    """The first bytes of a client that asks for a protocol (ALPN)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def test_handshakes_that_stay_half_open_keep_no_site_and_no_job_out(standing: Standing) -> None:
    raise_file_limit()
    standing.site("ulm")
    host, _, port = standing.address.partition(":")
    with standing.operator() as operator, ExitStack() as stack:
        running = operator.submit(experiment("long", clients=1, rounds=3000), ("ulm",))
        log = standing.folder / "fed" / "jobs" / running / "log"
        until(lambda: log.exists() and "round 1/3000" in log.read_text(), lambda: "no round 1")
        to_job, to_federation = hello(protocol_of(running)), hello("fedmx")
        begun = [b"", to_federation[:3], to_federation[:-1], to_federation, to_job[:-1], to_job]
        for number in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                one.sendall(begun[number % len(begun)])
        standing.site("bonn")  # joins among them, and so does the process of its job
        ends_in_time(standing)
        assert operator.order("job", running)["state"] == "running"
        operator.order("cancel", running)
        assert standing.over(operator, running)["reason"] == "cancelled"


def test_a_reader_changes_nothing(standing: Standing) -> None:
    standing.site("bonn").line("connected to")
    with standing.operator() as operator, standing.operator("looks", "reader") as reader:
        job = operator.submit(experiment(clients=2))
        changes = [name for name, (change, _) in ORDERS.items() if change]
        assert len(changes) >= 3
        for name in (*changes, "no such order"):
            with pytest.raises(FedmxError, match="looks"):
                reader.order(name, job if name == "cancel" else "bonn")
        with pytest.raises(FedmxError, match="looks"):
            reader.submit(experiment())
        assert operator.order("job", job)["state"] == "queued"
        assert operator.order("jobs")["all"] == 1
        assert [one["removed"] for one in operator.order("sites")] == [None]


def test_an_operator_looks_from_several_terminals_and_cannot_take_all_connections(
    standing: Standing,
) -> None:
    standing.operator("looks", "reader")  # makes the certificate
    with ExitStack() as stack:
        terminals = [
            stack.enter_context(standing.operator("looks", "reader"))
            for _ in range(MOST_CONNECTIONS)
        ]
        assert all(one.order("jobs")["all"] == 0 for one in terminals)
        with pytest.raises(FedmxError, match=str(MOST_CONNECTIONS)):
            stack.enter_context(standing.operator("looks", "reader"))
        standing.site("bonn")
        ends_in_time(standing)
        assert terminals[0].order("jobs")["all"] == 1
    with standing.operator("looks", "reader") as again:
        assert again.order("jobs")["all"] == 1


def test_what_only_a_server_sends_ends_the_connection_of_a_site(standing: Standing) -> None:
    mallory = Site(standing, "mallory")
    mallory.network.send(JobStart("000001", 0))
    assert "JobStart" in mallory.event(GaveUp).reason
    mallory.close()
