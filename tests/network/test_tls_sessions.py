"""Real TLS on loopback: whose certificate is believed, and what the ends say where one is not."""

from __future__ import annotations

import socket
import ssl

import pytest

from layers.network import (
    ClientTLS,
    ConnectionRejected,
    Connector,
    GaveUp,
    Limits,
    Listener,
    Retrying,
    make_server_certificate,
)
from tests.network.conftest import Certificates
from tests.network.wire_messages import (
    CODEC,
    QUICK,
    await_event,
)


def test_under_mutual_tls_an_identity_is_the_certificates(certificates: Certificates) -> None:
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        thief = Connector(
            listener.address, "client-2", CODEC, tls=certificates.client("client-1"), backoff=QUICK
        )
        with thief:
            gave_up = await_event(thief, GaveUp)
        assert gave_up.final
        assert "it is 'client-2', its certificate is for 'client-1'" in gave_up.reason
        refused = await_event(listener, ConnectionRejected)
        assert refused.peer == "client-2"
        assert not listener.peers


def test_a_certificate_of_another_ca_is_refused_on_either_side(
    certificates: Certificates, strangers: Certificates
) -> None:
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        with Connector(
            listener.address, "client-1", CODEC, tls=strangers.client("client-1")
        ) as connector:
            gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "not trusted" in gave_up.reason
        stranger = strangers.client("client-1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificates.folder / "ca.pem")
        context.load_cert_chain(stranger.certificate or "", stranger.key)
        await_event(listener, ConnectionRejected)
        assert "unknown ca" in tls_alert(listener, context)
        assert "not trusted" in await_event(listener, ConnectionRejected).reason


def tls_alert(listener: Listener, context: ssl.SSLContext) -> str:
    """What the server's TLS says to a client; under TLS 1.3 it is heard at the first read."""
    host, port = listener.address.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        pytest.raises(ssl.SSLError) as caught,
        context.wrap_socket(raw, server_hostname=host) as wrapped,
    ):
        wrapped.recv(1)
    return str(caught.value)


def test_a_client_without_a_certificate_learns_that_one_is_wanted(
    certificates: Certificates,
) -> None:
    nothing = ClientTLS(None, None, certificates.folder / "ca.pem")
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener,
        Connector(listener.address, "client-1", CODEC, tls=nothing) as connector,
    ):
        gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "is missing" in gave_up.reason


def test_a_server_whose_name_is_not_in_its_certificate_is_not_believed(
    certificates: Certificates,
) -> None:
    name = "elsewhere"
    if not (certificates.folder / f"{name}.pem").exists():
        make_server_certificate(certificates.folder, ["10.1.2.3"], file_name=name)
    tls = type(certificates.server)(
        certificates.folder / f"{name}.pem",
        certificates.folder / f"{name}.key",
        certificates.folder / "ca.pem",
    )
    with (
        Listener("127.0.0.1:0", CODEC, tls=tls) as listener,
        Connector(
            listener.address, "client-1", CODEC, tls=certificates.client("client-1")
        ) as connector,
    ):
        gave_up = await_event(connector, GaveUp)
        assert gave_up.final
        assert "not for that name" in gave_up.reason


def test_both_ends_say_that_only_the_client_has_tls(certificates: Certificates) -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(
            listener.address, "client-1", CODEC, tls=certificates.client("client-1")
        ) as connector,
    ):
        assert await_event(connector, GaveUp).reason == (
            f"{listener.address} does not speak TLS: give both ends certificates, or neither"
        )
        assert await_event(listener, ConnectionRejected).reason == (
            "this is TLS, and this end has none: give both ends certificates, or neither"
        )


def test_both_ends_say_that_only_the_server_has_tls(certificates: Certificates) -> None:
    limits = Limits(handshake_s=0.3)
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        assert await_event(listener, ConnectionRejected).reason == (
            "no step of the handshake within 0.3 s; this server has TLS, and the client began "
            "none: give both ends certificates, or neither"
        )
        assert await_event(connector, Retrying).reason.endswith(
            "; a server with TLS says nothing to a client without: "
            "give both ends certificates, or neither"
        )
