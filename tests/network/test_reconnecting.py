"""A client that loses its server, or is sent away: when it comes back, and when it gives up."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator

import pytest

from layers.network import (
    Backoff,
    Connected,
    Connector,
    Disconnected,
    GaveUp,
    Joined,
    Left,
    Listener,
    NetworkError,
    NotConnected,
    Received,
    Retrying,
)
from tests.network.conftest import Certificates
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    Note,
    await_event,
)


def test_a_client_comes_back_when_its_server_does() -> None:
    with Listener("127.0.0.1:0", CODEC) as first:
        address = first.address
        connector = Connector(address, "client-1", CODEC, backoff=QUICK)
        connector.start()
        await_event(first, Joined)
        await_event(connector, Connected)
    assert await_event(connector, Disconnected).reason == "the server closes"
    await_event(connector, Retrying)
    with pytest.raises(NotConnected):
        connector.send(Note("to nobody"))
    with Listener(address, CODEC) as second:
        await_event(second, Joined)
        await_event(connector, Connected)
        connector.send(Note("again"))
        assert await_event(second, Received).message == Note("again")
        connector.close()


def test_a_client_gives_up_after_the_time_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=QUICK, give_up_s=0.2) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert not gave_up.final
    assert "refused" in gave_up.reason
    assert address in gave_up.reason


class OneDelay(Backoff):
    """It has no second delay, as no backoff should."""

    def delays_s(self) -> Iterator[float]:
        yield 0.01


def test_a_client_that_cannot_go_on_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=OneDelay()) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    assert gave_up.reason.startswith(f"{address}: ")
    assert "StopIteration" in gave_up.reason
    assert "StopIteration" in caplog.text  # with its traceback


def test_a_client_that_is_sent_away_for_good_does_not_come_back() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        await_event(listener, Joined)
        listener.disconnect("client-1", "the experiment is over", final=True)
        assert await_event(listener, Left).reason == "the experiment is over"
        assert await_event(connector, GaveUp) == GaveUp("the experiment is over", True)


def test_a_client_that_is_sent_away_for_now_comes_back() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        await_event(listener, Joined)
        listener.disconnect("client-1", "come back later")
        assert await_event(listener, Left).reason == "come back later"
        assert await_event(connector, Disconnected).reason == "come back later"
        await_event(listener, Joined)


@pytest.mark.parametrize(
    ("refused", "accepted"),
    [
        ({"first_s": 0.0}, {"first_s": math.ulp(0.0)}),
        ({"first_s": 10.1}, {"first_s": 10.0}),
        ({"longest_s": 0.19}, {"longest_s": 0.2}),
        ({"factor": 0.999}, {"factor": 1.0}),
        ({"jitter": -math.ulp(0.0)}, {"jitter": 0.0}),
        ({"jitter": 1.001}, {"jitter": 1.0}),
        ({"jitter": float("nan")}, {"seed": -1}),
    ],
)
def test_a_backoff_is_refused_beyond_its_limits_and_accepted_at_them(refused, accepted) -> None:
    assert Backoff() == Backoff(first_s=0.2, factor=2.0, longest_s=10.0, jitter=0.5, seed=0)
    with pytest.raises(NetworkError, match="backoff"):
        Backoff(**refused)
    Backoff(**accepted)


def test_delays_grow_to_a_limit_and_are_the_same_for_the_same_seed() -> None:
    backoff = Backoff(first_s=1, factor=2, longest_s=8, jitter=0.5, seed=3)
    series = [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    again = [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    assert series == again
    for delay, longest in zip(series, [1, 2, 4, 8, 8, 8, 8, 8, 8], strict=True):
        assert longest / 2 <= delay <= longest


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 502 Bad Gateway\r\n\r\n", bytes([21, 3, 3, 0, 2, 2, 48])],
    ids=["a proxy", "an alert that anybody can send"],
)
@pytest.mark.parametrize("before", [True, False], ids=["connected before", "never connected"])
def test_what_another_one_says_at_the_servers_port_ends_no_client_that_was_connected(
    certificates: Certificates, answer: bytes, before: bool
) -> None:
    first = Listener("127.0.0.1:0", CODEC, tls=certificates.server)
    first.start()
    where = ("127.0.0.1", int(first.address.rpartition(":")[2]))
    if not before:
        first.close(0.0)
        other = socket.create_server(where)
    tls = certificates.client("client-1")
    with Connector(first.address, "client-1", CODEC, tls=tls, backoff=QUICK) as client:
        if before:
            await_event(client, Connected)
            first.close(0.0)
            other = socket.create_server(where)
        with other:
            other.settimeout(20)
            asking, _ = other.accept()
            with asking:
                asking.recv(1 << 16)
                asking.sendall(answer)
                if not before:
                    assert await_event(client, GaveUp).final
                    return
                await_event(client, Retrying)
        with Listener(f"127.0.0.1:{where[1]}", CODEC, tls=certificates.server):
            await_event(client, Connected)
