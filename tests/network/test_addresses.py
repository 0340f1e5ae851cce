"""Addresses of servers: which are refused, and what is said of them."""

from __future__ import annotations

import socket

import pytest

from layers.network import (
    AddressError,
    Connected,
    Connector,
    GaveUp,
    Listener,
)
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    await_event,
)

NO_HOSTS = pytest.mark.parametrize(
    "host", ["a..b", "x" * 70, "ü" * 70], ids=["dots", "long", "long umlauts"]
)


@NO_HOSTS
def test_a_client_gives_up_a_host_that_cannot_exist(host: str) -> None:
    address = f"{host}:9000"
    with Connector(address, "client-1", CODEC, insecure=True, backoff=QUICK) as connector:
        gave_up = await_event(connector, GaveUp)
        assert connector.next_event() is None
    assert gave_up.final
    assert gave_up.reason.startswith(f"{address}: unknown host")


@NO_HOSTS
def test_a_server_at_a_host_that_cannot_exist_is_refused(host: str) -> None:
    address = f"{host}:9000"
    with pytest.raises(AddressError, match="unknown host") as caught:
        Listener(address, CODEC, insecure=True).start()
    assert str(caught.value).startswith(address)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost", "write HOST:PORT"),
        ("::1:80", "write HOST:PORT"),
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


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        pytest.raises(AddressError, match="choose another port") as caught,
    ):
        Listener(listener.address, CODEC).start()
    assert listener.address in str(caught.value)


def test_plain_tcp_off_loopback_needs_to_be_asked_for() -> None:
    with Listener("0.0.0.0:0", CODEC, insecure=True) as listener:
        assert listener.address.startswith("0.0.0.0:")


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
