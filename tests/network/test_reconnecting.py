"""Addresses, and clients that reconnect or give up."""

import math
import socket
from collections.abc import Iterator

import pytest

from layers.network import (
    AddressError,
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
from tests.network.wire_messages import CODEC, QUICK, Note, await_event, joined


def test_a_client_reconnects_when_its_server_restarts() -> None:
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


def test_a_client_gives_up_after_its_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=QUICK, give_up_s=0.2) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert not gave_up.final
    assert "refused" in gave_up.reason
    assert address in gave_up.reason


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "no TLS"])
def test_the_time_limit_ends_a_handshake_with_a_server_that_says_nothing(
    certificates: Certificates, tls: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        files = certificates.client("client-1") if tls else None
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Connector(address, "client-1", CODEC, tls=files, give_up_s=0.5) as connector:
            # Without the limit the handshake has 60 s, and with TLS twice as long.
            gave_up = await_event(connector, GaveUp, timeout_s=45.0)
            assert connector.next_event() is None
    assert not gave_up.final
    assert gave_up.reason.startswith(f"{address}: no answer")


class OneDelay(Backoff):
    """A broken backoff without a second delay."""

    def delays_s(self) -> Iterator[float]:
        yield 0.01


def test_a_client_reports_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with Connector(address, "client-1", CODEC, backoff=OneDelay()) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    assert gave_up.reason.startswith(f"{address}: ")
    assert "StopIteration" in gave_up.reason
    assert "StopIteration" in caplog.text  # with its traceback


@pytest.mark.parametrize("final", [False, True])
def test_a_client_reconnects_after_a_goodbye_unless_it_is_final(final: bool) -> None:
    with joined() as (listener, connector):
        listener.disconnect("client-1", "enough", final=final)
        assert await_event(listener, Left).reason == "enough"
        if final:
            assert await_event(connector, GaveUp) == GaveUp("enough", True)
        else:
            assert await_event(connector, Disconnected).reason == "enough"
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
def test_backoff_settings_are_validated(refused, accepted) -> None:
    assert Backoff() == Backoff(first_s=0.2, factor=2.0, longest_s=10.0, jitter=0.5, seed=0)
    with pytest.raises(NetworkError, match="backoff"):
        Backoff(**refused)
    Backoff(**accepted)


def test_delays_grow_to_a_limit_and_are_the_same_for_the_same_seed() -> None:
    backoff = Backoff(first_s=1, factor=2, longest_s=8, jitter=0.5, seed=3)
    series = [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    assert series == [delay for delay, _ in zip(backoff.delays_s(), range(9), strict=False)]
    for delay, longest in zip(series, [1, 2, 4, 8, 8, 8, 8, 8, 8], strict=True):
        assert longest / 2 <= delay <= longest


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 502 Bad Gateway\r\n\r\n", bytes([21, 3, 3, 0, 2, 2, 48])],
    ids=["a proxy", "an alert that anybody can send"],
)
@pytest.mark.parametrize("before", [True, False], ids=["connected before", "never connected"])
def test_an_impostor_at_the_servers_port_does_not_end_a_client_that_was_connected(
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


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "ü" * 70])
def test_a_client_gives_up_on_an_invalid_host_and_a_server_refuses_it(host: str) -> None:
    address = f"{host}:9000"
    with Connector(address, "client-1", CODEC, insecure=True, backoff=QUICK) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    with pytest.raises(AddressError) as refused:
        Listener(address, CODEC, insecure=True).start()
    for reason in (gave_up.reason, str(refused.value)):
        assert reason.startswith(f"{address}: unknown host")


def test_a_host_that_the_system_does_not_know_may_be_known_later() -> None:
    address = "[fe80::1%absent]:9000"  # no interface has this name
    with pytest.raises(AddressError) as caught:
        Listener(address, CODEC, insecure=True).start()
    assert str(caught.value).startswith(f"{address}: unknown host (")
    with Connector(address, "client-1", CODEC, insecure=True, backoff=QUICK) as connector:
        for _ in range(2):
            assert await_event(connector, Retrying).reason.startswith(f"{address}: unknown host (")


def test_an_address_of_another_machine_is_no_place_to_listen() -> None:
    with pytest.raises(AddressError, match=r"^192\.0\.2\.1:0: not an address of this machine"):
        Listener("192.0.2.1:0", CODEC, insecure=True).start()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost", "write HOST:PORT"),
        ("::1:80", "write HOST:PORT"),
        ("[::1:80", "write HOST:PORT"),
        ("::1]:80", "write HOST:PORT"),
        ("127.0.0.1:70000", "from 0 to 65535"),
        ("127.0.0.1:http", "from 0 to 65535"),
        ("0.0.0.0:0", "no TLS"),
        ("192.0.2.1:80", "no TLS"),
        ("example.org:80", "no TLS"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_is_opened(address: str, words: str) -> None:
    for make in (lambda: Listener(address, CODEC), lambda: Connector(address, "c", CODEC)):
        with pytest.raises(AddressError) as caught:
            make()
        assert words in str(caught.value)
        assert address in str(caught.value)


def test_a_port_in_use_is_reported() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        pytest.raises(AddressError, match="another port") as caught,
    ):
        Listener(listener.address, CODEC).start()
    assert listener.address in str(caught.value)


def test_plain_tcp_off_loopback_requires_insecure() -> None:
    with Listener("0.0.0.0:0", CODEC, insecure=True) as listener:
        assert listener.address.startswith("0.0.0.0:")
    with pytest.raises(AddressError, match=r"0\.0\.0\.0:0.*insecure"):
        Listener("0.0.0.0:0", CODEC)
    with pytest.raises(AddressError, match=r"192\.0\.2\.1:7070.*insecure"):
        Connector("192.0.2.1:7070", "client-1", CODEC)


def test_ipv6_works_like_ipv4() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        listener = Listener("[::1]:0", CODEC)
        listener.start()
    except AddressError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    with Connector(listener.address, "client-1", CODEC) as connector:
        assert await_event(connector, Connected).peer == listener.address
    listener.close()
