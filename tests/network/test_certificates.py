"""Certificates: their content, the checks, and TLS sessions."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layers.network import (
    CertificateError,
    ClientTLS,
    ConnectionRejected,
    Connector,
    GaveUp,
    Limits,
    Listener,
    Retrying,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_crl,
    make_server_certificate,
)
from layers.network.tls import explain
from tests.network.conftest import Certificates
from tests.network.wire_messages import CODEC, QUICK, await_event


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def valid_on(
    certificates: Certificates, folder: Path, first: int = -9, last: int = -1
) -> ClientTLS:
    """A client certificate of the CA, valid from one day to another, counted from today."""
    ca = load(certificates.folder / "ca.pem")
    ca_key = load_pem_private_key((certificates.folder / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "late")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now + first * day)
        .not_valid_after(now + last * day)
        .sign(ca_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    (folder / "late.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "late.key").write_bytes(secret)
    return ClientTLS(folder / "late.pem", folder / "late.key", certificates.folder / "ca.pem")


def test_certificates_have_the_right_extensions(tmp_path: Path) -> None:
    ca = load(make_ca(tmp_path).certificate)
    names = ["example.org", "10.1.2.3", "::1"]
    server = load(make_server_certificate(tmp_path, names).certificate)
    client = load(make_client_certificate(tmp_path, "client-7").certificate)
    for certificate in (server, client):
        certificate.verify_directly_issued_by(ca)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        assert not constraints.ca
    usages = {
        certificate: list(
            certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
        for certificate in (server, client)
    }
    assert usages[server] == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert usages[client] == [ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["example.org"]
    addresses = alternatives.get_values_for_type(x509.IPAddress)
    assert [str(address) for address in addresses] == ["10.1.2.3", "::1"]
    (common_name,) = client.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == "client-7"
    assert isinstance(client.public_key(), ec.EllipticCurvePublicKey)
    assert isinstance(client.public_key().curve, ec.SECP256R1)  # type: ignore[union-attr]


def extension(certificate: x509.Certificate, kind: type) -> x509.Extension:
    return certificate.extensions.get_extension_for_class(kind)


def test_key_usage_is_restricted(tmp_path: Path) -> None:
    ca = load(make_ca(tmp_path).certificate)
    server = load(make_server_certificate(tmp_path).certificate)
    client = load(make_client_certificate(tmp_path, "client-7").certificate)
    for certificate, allowed in (
        (ca, {"key_cert_sign", "crl_sign"}),
        (server, {"digital_signature"}),
        (client, {"digital_signature"}),
    ):
        found = extension(certificate, x509.KeyUsage)
        names = ("digital_signature", "content_commitment", "key_encipherment", "key_agreement")
        names += ("data_encipherment", "key_cert_sign", "crl_sign")
        assert {name for name in names if getattr(found.value, name)} == allowed
        assert found.critical
        constraints = extension(certificate, x509.BasicConstraints)
        assert constraints.critical
        assert constraints.value.ca is (certificate is ca)
        assert constraints.value.path_length == (0 if certificate is ca else None)
        identifier = extension(certificate, x509.SubjectKeyIdentifier)
        assert not identifier.critical
        expected = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
        assert identifier.value.digest == expected.digest
    for certificate in (server, client):
        assert not extension(certificate, x509.ExtendedKeyUsage).critical
        authority = extension(certificate, x509.AuthorityKeyIdentifier)
        assert not authority.critical
        assert (
            authority.value.key_identifier == extension(ca, x509.SubjectKeyIdentifier).value.digest
        )
    assert not extension(server, x509.SubjectAlternativeName).critical
    assert server.subject.rfc4514_string() == "CN=localhost"
    alternatives = extension(server, x509.SubjectAlternativeName).value
    addresses = alternatives.get_values_for_type(x509.IPAddress)
    assert alternatives.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in addresses] == ["127.0.0.1", "::1"]


def test_a_certificate_is_valid_from_ten_minutes_ago_for_its_days(tmp_path: Path) -> None:
    made = [
        (make_ca(tmp_path), 3650),
        (make_server_certificate(tmp_path), 825),
        (make_client_certificate(tmp_path, "client-7"), 825),
        (make_client_certificate(tmp_path, "client-8", days=1), 1),
        (make_server_certificate(tmp_path, days=3, file_name="other"), 3),
    ]
    for files, days in made:
        certificate = load(files.certificate)
        length = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert length == datetime.timedelta(days=days, minutes=10)


def test_a_host_name_may_be_longer_than_a_common_name(tmp_path: Path) -> None:
    make_ca(tmp_path)
    long = ".".join(["a" * 30] * 4)
    certificate = load(make_server_certificate(tmp_path, [long]).certificate)
    (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == long[:64]
    alternatives = extension(certificate, x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == [long]


def test_files_get_their_mode_and_their_folder_with_its_parents(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = make_ca(tmp_path / "new" / "pki")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (files.certificate, files.key)]
    assert modes == [0o644, 0o600]


def test_private_keys_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    files = [make_ca(tmp_path), make_server_certificate(tmp_path)]
    files.append(make_client_certificate(tmp_path, "client-7"))
    assert {stat.S_IMODE(file.key.stat().st_mode) for file in files} == {0o600}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_client_certificate(tmp_path, "client-7")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for make in (lambda: make_ca(tmp_path), lambda: make_client_certificate(tmp_path, "client-7")):
        with pytest.raises(CertificateError, match="exists already"):
            make()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("identity", ["", "../escape", "a b", "-x", "é"])
def test_an_invalid_identity_gets_no_certificate(tmp_path: Path, identity: str) -> None:
    make_ca(tmp_path)
    with pytest.raises(CertificateError, match="identity"):
        make_client_certificate(tmp_path, identity)


def test_a_certificate_needs_a_ca_a_name_and_a_day(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="make one first"):
        make_client_certificate(tmp_path, "client-7")
    make_ca(tmp_path)
    with pytest.raises(CertificateError, match="at least one name"):
        make_server_certificate(tmp_path, [])
    with pytest.raises(CertificateError, match="neither a host name nor an IP"):
        make_server_certificate(tmp_path, ["x" * 300])
    with pytest.raises(CertificateError, match="at least 1 day"):
        make_client_certificate(tmp_path, "client-7", days=0)


def pem(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, password: bytes = b""
) -> bytes:
    hidden = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)


P256 = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("ca.pem", None, "has no usable CA (No such file or directory: {folder}/ca.pem)"),
        ("ca.key", None, "has no usable CA (No such file or directory: {folder}/ca.key)"),
        ("ca.pem", b"garbage", "{folder}: ca.pem or ca.key is damaged"),
        ("ca.key", b"garbage", "{folder}: ca.pem or ca.key is damaged"),
        ("ca.key", pem(P256, b"password"), "{folder}: ca.pem or ca.key is damaged"),
        ("ca.key", pem(ed25519.Ed25519PrivateKey.generate()), "{folder}/ca.key is not an elliptic"),
    ],
    ids=["no certificate", "no key", "certificate", "key", "encrypted key", "another kind of key"],
)
def test_an_unusable_authority_signs_nothing(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    make_ca(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for make in (
        lambda: make_client_certificate(tmp_path, "client-7"),
        lambda: make_server_certificate(tmp_path),
        lambda: make_crl(tmp_path),
    ):
        with pytest.raises(CertificateError) as caught:
            make()
        assert words.format(folder=tmp_path) in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"ca.pem", "ca.key"}


def test_a_folder_that_cannot_be_made_or_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CertificateError, match="file/pki cannot be written: Not a directory"):
        make_ca(tmp_path / "file" / "pki")
    with pytest.raises(CertificateError, match=r"absent has no usable CA \(No such file"):
        make_crl(tmp_path / "absent")


def changed(tls: ClientTLS, tmp_path: Path, what: str, other: Certificates) -> ClientTLS:
    """The same files, with one error."""
    assert tls.certificate
    assert tls.key
    copies = [tmp_path / path.name for path in (tls.certificate, tls.key, tls.ca)]
    for path, copy in zip((tls.certificate, tls.key, tls.ca), copies, strict=True):
        shutil.copy(path, copy)
    certificate, key, ca = copies
    match what:
        case "no certificate":
            certificate.unlink()
        case "no key":
            key.unlink()
        case "no ca":
            ca.unlink()
        case "garbage":
            certificate.write_text("not a certificate")
        case "garbage key":
            key.write_text("not a key")
        case "other key":
            shutil.copy(other.client("client-9").key or "", key)
        case "other ca":
            shutil.copy(other.folder / "ca.pem", ca)
    return ClientTLS(certificate, key, ca)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no certificate", "cannot be read (No such file"),
        ("no key", "cannot be read (No such file"),
        ("no ca", "cannot be read (No such file"),
        ("garbage", "is not a certificate in PEM"),
        ("garbage key", "is not an unencrypted private key"),
        ("other key", "does not belong to the certificate"),
        ("other ca", "was not signed by the CA"),
    ],
)
def test_a_wrong_file_is_reported_with_the_reason(
    certificates: Certificates, strangers: Certificates, tmp_path: Path, what: str, words: str
) -> None:
    client = changed(certificates.client("client-1"), tmp_path, what, strangers)
    assert client.certificate
    assert client.key
    server = ServerTLS(client.certificate, client.key, client.ca)
    for tls in (client, server):
        with pytest.raises(CertificateError) as caught:
            tls.context()
        assert words in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_certificate_without_its_key_is_refused(certificates: Certificates) -> None:
    tls = certificates.client("client-1")
    with pytest.raises(CertificateError, match="give both"):
        ClientTLS(tls.certificate, None, tls.ca).context()


def test_an_expired_certificate_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    tls = valid_on(certificates, tmp_path)
    with pytest.raises(CertificateError, match="expired on"):
        tls.context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.certificate or "", tls.key)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        host, port = listener.address.split(":")
        with (
            socket.create_connection((host, int(port)), timeout=20) as raw,
            pytest.raises(ssl.SSLError, match="expired"),
            context.wrap_socket(raw, server_hostname=host) as wrapped,
        ):
            wrapped.recv(1)
        assert "has expired" in await_event(listener, ConnectionRejected).reason


def test_a_certificate_that_is_not_valid_yet_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    tls = valid_on(certificates, tmp_path, first=1, last=9)
    with pytest.raises(CertificateError, match=r"late\.pem is valid only from"):
        tls.context()


def test_under_mutual_tls_the_identity_must_match_the_certificate(
    certificates: Certificates,
) -> None:
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        thief = Connector(
            listener.address, "client-2", CODEC, tls=certificates.client("client-1"), backoff=QUICK
        )
        with thief:
            gave_up = await_event(thief, GaveUp)
        assert gave_up.final
        assert all(name in gave_up.reason for name in ("'client-1'", "'client-2'"))
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
    """The server's TLS alert to a client; under TLS 1.3 it arrives at the first read."""
    host, port = listener.address.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        pytest.raises(ssl.SSLError) as caught,
        context.wrap_socket(raw, server_hostname=host) as wrapped,
    ):
        wrapped.recv(1)
    return str(caught.value)


def test_a_client_without_a_certificate_learns_that_one_is_required(
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


def test_a_server_name_mismatch_is_refused(certificates: Certificates) -> None:
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


@pytest.mark.parametrize("code", [62, 64])  # of OpenSSL: host name, IP address
def test_the_server_is_named_whose_certificate_is_for_another_name(code: int) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "mismatch"
    assert "example.org:1 is not for that name (mismatch)" in explain(error, "example.org:1")


def test_both_ends_report_that_only_the_client_uses_tls(certificates: Certificates) -> None:
    with (
        Listener("127.0.0.1:0", CODEC) as listener,
        Connector(
            listener.address, "client-1", CODEC, tls=certificates.client("client-1")
        ) as connector,
    ):
        assert f"{listener.address} does not speak TLS" in await_event(connector, GaveUp).reason
        assert "speaks TLS" in await_event(listener, ConnectionRejected).reason


def test_both_ends_report_that_only_the_server_uses_tls(certificates: Certificates) -> None:
    limits = Limits(handshake_s=0.3)
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        assert "requires TLS" in await_event(listener, ConnectionRejected).reason
        assert "a server with TLS" in await_event(connector, Retrying).reason
