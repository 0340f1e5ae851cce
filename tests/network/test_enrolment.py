"""Keys that stay where they are made: signing requests, and what an authority refuses to sign."""

import datetime
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from layers.network import (
    CertificateError,
    ClientTLS,
    Connector,
    Joined,
    Listener,
    ServerTLS,
    make_ca,
    revoke,
)
from layers.network.enrolment import (
    Signed,
    request_client,
    request_server,
    sign_client,
    sign_server,
)
from tests.network.wire_messages import CODEC, await_event


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    make_ca(tmp_path / "ca")
    return tmp_path / "ca"


def csr(path: Path, *, key: object = None, names: tuple[str, ...] = ("client-7",)) -> Path:
    """A request with another key or subject than fedmx's own."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path.write_bytes(request.public_bytes(Encoding.PEM))
    return path


def test_a_server_and_a_client_whose_keys_never_moved_meet(ca: Path, tmp_path: Path) -> None:
    served = request_server(tmp_path / "server", ["127.0.0.1", "server.example.org"])
    asked = request_client(tmp_path / "client", "client-7")
    assert stat.S_IMODE(asked.key.stat().st_mode) == 0o600
    own = sign_server(ca, served.request)
    assert (own.names, own.fingerprint) == (("127.0.0.1", "server.example.org"), served.fingerprint)
    mine = sign_client(ca, asked.request, "client-7")
    assert (mine.names, mine.fingerprint) == ((), asked.fingerprint)
    assert [path.suffix for path in (tmp_path / "ca").glob("*.key")] == [".key"]  # the authority's
    server = ServerTLS(own.certificate, served.key, ca / "ca.pem")
    client = ClientTLS(mine.certificate, asked.key, ca / "ca.pem")
    with (
        Listener("127.0.0.1:0", CODEC, tls=server) as listener,
        Connector(listener.address, "client-7", CODEC, tls=client),
    ):
        joined = await_event(listener, Joined)
        assert (joined.peer, joined.authenticated) == ("client-7", True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: request_client(path.parent / "m", "client-8").request, "client-8"),
        (lambda path: csr(path, names=("client-7", "client-8")), "client-8"),
        (lambda path: csr(path, names=()), "not for client-7"),
        (lambda path: csr(path, key=rsa.generate_private_key(65537, 2048)), "P-256"),
        (lambda path: csr(path, key=ec.generate_private_key(ec.SECP256K1())), "P-256"),
        (lambda path: path.write_bytes(b"x") and path, "not a signing request"),
        (lambda path: path.parent / "absent.csr", "cannot be read"),
    ],
)
def test_a_request_for_another_name_or_with_a_weak_key_is_not_signed(
    ca: Path, tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    before = sorted(ca.iterdir())
    with pytest.raises(CertificateError, match=words) as caught:
        sign_client(ca, make(tmp_path / "client-7.csr"), "client-7")
    assert "\n" not in str(caught.value)
    assert sorted(ca.iterdir()) == before


def test_a_request_that_was_changed_on_its_way_is_not_signed(ca: Path, tmp_path: Path) -> None:
    asked = request_client(tmp_path, "client-7").request
    content = bytearray(x509.load_pem_x509_csr(asked.read_bytes()).public_bytes(Encoding.DER))
    at = content.index(b"client-7")
    content[at : at + 8] = b"client-8"
    asked.write_bytes(x509.load_der_x509_csr(bytes(content)).public_bytes(Encoding.PEM))
    with pytest.raises(CertificateError, match="own key"):
        sign_client(ca, asked, "client-8")


def test_a_client_gets_a_second_certificate_only_if_told_and_the_first_can_be_revoked(
    ca: Path, tmp_path: Path
) -> None:
    asked = request_client(tmp_path, "client-7").request
    first = sign_client(ca, asked, "client-7").certificate.read_bytes()
    with pytest.raises(CertificateError, match="--again"):
        sign_client(ca, asked, "client-7")
    assert (ca / "client-7.pem").read_bytes() == first
    again = sign_client(ca, asked, "client-7", again=True)
    assert again.replaced.read_bytes() == first != again.certificate.read_bytes()
    revoke(ca, [again.replaced])


def test_a_server_gets_a_second_certificate_only_if_told_and_the_first_is_kept(
    ca: Path, tmp_path: Path
) -> None:
    asked = request_server(tmp_path, ["127.0.0.1"])
    first = sign_server(ca, asked.request)
    assert first == Signed(ca / "server.pem", ("127.0.0.1",), asked.fingerprint, None)
    content = first.certificate.read_bytes()
    with pytest.raises(CertificateError, match=r"server\.pem exists already.*--again"):
        sign_server(ca, asked.request)
    assert first.certificate.read_bytes() == content
    kept = ca / f"server.{x509.load_pem_x509_certificate(content).serial_number:X}.pem"
    assert sign_server(ca, asked.request, again=True) == replace(first, replaced=kept)
    assert kept.read_bytes() == content != first.certificate.read_bytes()


def test_a_signed_certificate_is_valid_for_its_days(ca: Path, tmp_path: Path) -> None:
    client = request_client(tmp_path, "client-7").request
    server = request_server(tmp_path, ["127.0.0.1"]).request
    for sign, days in (
        (lambda: sign_client(ca, client, "client-7"), 825),
        (lambda: sign_client(ca, client, "client-7", again=True, days=2), 2),
        (lambda: sign_server(ca, server), 825),
        (lambda: sign_server(ca, server, again=True, days=3), 3),
    ):
        certificate = x509.load_pem_x509_certificate(sign().certificate.read_bytes())
        length = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert length == datetime.timedelta(days=days, minutes=10)


def test_a_servers_first_name_may_be_longer_than_a_common_name(ca: Path, tmp_path: Path) -> None:
    long = ".".join(["a" * 30] * 4)
    asked = request_server(tmp_path, [long, "10.1.2.3"])
    request = x509.load_pem_x509_csr(asked.request.read_bytes())
    assert request.subject.rfc4514_string() == f"CN={long[:64]}"
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert not names.critical
    signed = sign_server(ca, asked.request)
    assert signed.names == (long, "10.1.2.3")
    certificate = x509.load_pem_x509_certificate(signed.certificate.read_bytes())
    assert certificate.subject == request.subject
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert (found.value, found.critical) == (names.value, False)


def test_two_clients_cannot_share_a_key(ca: Path, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    sign_client(ca, csr(tmp_path / "client-7.csr", key=key), "client-7")
    other = csr(tmp_path / "client-8.csr", key=key, names=("client-8",))
    with pytest.raises(CertificateError, match=r"client-7\.pem"):
        sign_client(ca, other, "client-8", again=True)


def test_a_servers_request_needs_a_name(ca: Path, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="at least one name"):
        request_server(tmp_path, [])
    with pytest.raises(CertificateError, match="at least one name"):
        sign_server(ca, csr(tmp_path / "server.csr"))


def test_a_key_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    made = request_client(tmp_path, "client-7")
    before = made.key.read_bytes()
    made.request.unlink()
    with pytest.raises(CertificateError, match="exists already"):
        request_client(tmp_path, "client-7")
    assert made.key.read_bytes() == before
