"""Ways through an HTTP proxy: mutual TLS inside CONNECT, and a named reason for each failure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from layers.network import (
    AddressError,
    Connected,
    Connector,
    GaveUp,
    Joined,
    Listener,
    Received,
    Retrying,
    ServerTLS,
    make_server_certificate,
)
from layers.network.address import Address
from layers.network.proxy import Proxy
from tests.examples.free_port import free_port
from tests.network.conftest import Certificates
from tests.network.connect_proxy import ConnectProxy
from tests.network.wire_messages import CODEC, QUICK, Note, await_event

FAR = "fl.example.org:443"


@pytest.fixture
def listener(certificates: Certificates, tmp_path: Path) -> Iterator[Listener]:
    """A server with a certificate for its name, to which only the proxy knows the way."""
    name = tmp_path.name
    own = make_server_certificate(certificates.folder, ["fl.example.org"], file_name=name)
    tls = ServerTLS(own.certificate, own.key, certificates.server.ca)
    with Listener("127.0.0.1:0", CODEC, tls=tls) as listener:
        yield listener


def client(certificates: Certificates, **options: float) -> Connector:
    tls = certificates.client("client-1")
    return Connector(FAR, "client-1", CODEC, tls=tls, backoff=QUICK, **options)


def test_mutual_tls_goes_through_the_proxy_of_the_environment(
    certificates: Certificates, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy({FAR: listener.address}) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://anna:p%40ss@{proxy.address}")
        with client(certificates) as connector:
            joined = await_event(listener, Joined)
            assert (joined.peer, joined.authenticated) == ("client-1", True)
            assert await_event(connector, Connected).peer == FAR
            connector.send(Note("x" * 100_000))
            assert await_event(listener, Received).message == Note("x" * 100_000)
    (asked,) = proxy.asked
    assert asked.startswith(f"CONNECT {FAR} HTTP/1.1\r\nHost: {FAR}\r\n")
    assert base64.b64encode(b"anna:p@ss").decode() in asked


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "NAME:PASSWORD"),
        (b"", "ends the connection"),
        (b"HTTP/1.1 200", "ends the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not a proxy"),
        (b"x" * (1 << 20), "not a proxy"),
    ],
)
def test_what_a_proxy_refuses_is_tried_again(
    certificates: Certificates,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
    word: str,
) -> None:
    with ConnectProxy({FAR: listener.address}, answer) as proxy:
        monkeypatch.setenv("https_proxy", f"anna:secret@{proxy.address}")
        with client(certificates) as connector:
            reason = await_event(connector, Retrying).reason
            assert all(part in reason for part in (FAR, f"proxy {proxy.address}", word))
            assert "secret" not in reason
            proxy.answer = None
            await_event(connector, Connected)


def test_a_proxy_that_hangs_or_is_away_is_named_within_the_time_limit(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy({}) as proxy:
        proxy.hangs = True
        away, unknown = f"127.0.0.1:{free_port()}", "proxy.invalid:80"
        for address, word in ((proxy.address, "no answer"), (away, "refused"), (unknown, "")):
            monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
            with client(certificates, give_up_s=0.5) as connector:
                gave_up = await_event(connector, GaveUp)
            assert not gave_up.final
            assert word in gave_up.reason
            assert f"proxy {address}" in gave_up.reason


def test_a_proxy_that_is_between_the_two_ends_of_tls_is_not_trusted(
    certificates: Certificates, strangers: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Listener("127.0.0.1:0", CODEC, tls=strangers.server) as listener,
        ConnectProxy({FAR: listener.address}) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        with client(certificates) as connector:
            gave_up = await_event(connector, GaveUp)
    assert gave_up.final
    assert f"proxy {proxy.address}" in gave_up.reason


def test_this_machine_and_the_names_of_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org")
    monkeypatch.setenv("NO_PROXY", "near.example.org,10.0.0.5")
    for direct in ("localhost:1", "127.0.0.1:1", "[::1]:1", "near.example.org:1", "10.0.0.5:1"):
        assert Proxy.to(Address.parse(direct)) is None
    assert str(Proxy.to(Address.parse(FAR))) == "proxy.example.org:80"
    for wrong in ("https://proxy:1", "http://proxy:x", "socks5://proxy:1", "http://"):
        monkeypatch.setenv("HTTPS_PROXY", wrong)
        with pytest.raises(AddressError, match="HTTPS_PROXY"):
            Connector(FAR, "client-1", CODEC, insecure=True)
