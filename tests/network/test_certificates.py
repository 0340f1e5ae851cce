"""Certificates: their content, the checks, and TLS sessions."""

import datetime
import os
import shutil
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
from tests.network.wire_messages import CODEC, QUICK, await_event, dial


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def valid_on(
    certificates: Certificates, folder: Path, first: int = -9, last: int = -1
) -> ClientTLS:
    """A client certificate of the CA, valid from one day to another, counted from today."""
    ca = load(certificates.folder / "ca.pem")
    ca_key = load_pem_private_key((certificates.folder / "ca.key").read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "late")])
    builder = x509.CertificateBuilder(ca.subject, subject, key.public_key(), 7)
    builder = builder.not_valid_before(now + first * day).not_valid_after(now + last * day)
    certificate = builder.sign(ca_key, hashes.SHA256())  # type: ignore[arg-type]
    (folder / "late.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "late.key").write_bytes(pem(key))
    return ClientTLS(folder / "late.pem", folder / "late.key", certificates.folder / "ca.pem")


def extension(certificate: x509.Certificate, kind: type) -> x509.Extension:
    return certificate.extensions.get_extension_for_class(kind)


def test_certificates_have_the_right_names_and_extensions(tmp_path: Path) -> None:
    ca = load(make_ca(tmp_path).certificate)
    names = ["example.org", "10.1.2.3", "::1"]
    server = load(make_server_certificate(tmp_path, names).certificate)
    usual = load(make_server_certificate(tmp_path, file_name="usual").certificate)
    client = load(make_client_certificate(tmp_path, "client-7").certificate)
    signing = {"key_cert_sign", "crl_sign"}
    for certificate in (ca, server, usual, client):
        found = extension(certificate, x509.KeyUsage)
        usages = ("digital_signature", "content_commitment", "key_encipherment", "key_agreement")
        usages += ("data_encipherment", *signing)
        allowed = signing if certificate is ca else {"digital_signature"}
        assert {name for name in usages if getattr(found.value, name)} == allowed
        constraints = extension(certificate, x509.BasicConstraints)
        assert found.critical
        assert constraints.critical
        assert constraints.value.ca is (certificate is ca)
        assert constraints.value.path_length == (0 if certificate is ca else None)
        identifier = extension(certificate, x509.SubjectKeyIdentifier)
        assert not identifier.critical
        expected = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
        assert identifier.value.digest == expected.digest
        assert isinstance(certificate.public_key().curve, ec.SECP256R1)  # type: ignore[union-attr]
    ours = extension(ca, x509.SubjectKeyIdentifier).value.digest
    for certificate, usage in ((server, "SERVER_AUTH"), (client, "CLIENT_AUTH")):
        certificate.verify_directly_issued_by(ca)
        extended = extension(certificate, x509.ExtendedKeyUsage)
        assert list(extended.value) == [getattr(ExtendedKeyUsageOID, usage)]
        authority = extension(certificate, x509.AuthorityKeyIdentifier)
        assert authority.value.key_identifier == ours
        assert not extended.critical
        assert not authority.critical
    assert client.subject.rfc4514_string() == "CN=client-7"
    assert usual.subject.rfc4514_string() == "CN=localhost"
    for certificate, host, addresses in (
        (server, "example.org", ["10.1.2.3", "::1"]),
        (usual, "localhost", ["127.0.0.1", "::1"]),
    ):
        alternatives = extension(certificate, x509.SubjectAlternativeName)
        assert not alternatives.critical
        assert alternatives.value.get_values_for_type(x509.DNSName) == [host]
        assert list(map(str, alternatives.value.get_values_for_type(x509.IPAddress))) == addresses


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
        made = [make_ca(folder := tmp_path / "new" / "pki"), make_server_certificate(folder)]
        made.append(make_client_certificate(folder, "client-7"))
    finally:
        os.umask(before)
    for files in made:
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (files.certificate, files.key)]
        assert modes == [0o644, 0o600]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_client_certificate(tmp_path, "client-7")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for make in (lambda: make_ca(tmp_path), lambda: make_client_certificate(tmp_path, "client-7")):
        with pytest.raises(CertificateError, match="exists already"):
            make()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_certificate_needs_a_ca_a_name_and_a_day(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="make one first"):
        make_client_certificate(tmp_path, "client-7")
    make_ca(tmp_path)
    for make, words in (
        (lambda: make_server_certificate(tmp_path, []), "at least one name"),
        (lambda: make_server_certificate(tmp_path, ["x" * 300]), "neither a host name nor an IP"),
        (lambda: make_client_certificate(tmp_path, "client-7", days=0), "at least 1 day"),
        (lambda: make_client_certificate(tmp_path, "../escape"), "identity"),
        (lambda: make_client_certificate(tmp_path, "é"), "identity"),
    ):
        with pytest.raises(CertificateError, match=words):
            make()


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


def changed(tls: ClientTLS, tmp_path: Path, name: str, content: bytes | None) -> ClientTLS:
    """The same files, with one error."""
    copies = []
    for path in (tls.certificate, tls.key, tls.ca):
        assert path
        copies.append(Path(shutil.copy(path, tmp_path)))
        if path.name == name:
            copies[-1].unlink()
            if content is not None:
                copies[-1].write_bytes(content)
    return ClientTLS(*copies)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("client-1.pem", None, "cannot be read (No such file"),
        ("client-1.key", None, "cannot be read (No such file"),
        ("ca.pem", None, "cannot be read (No such file"),
        ("client-1.pem", "garbage", "is not a certificate in PEM"),
        ("client-1.key", "garbage", "is not an unencrypted private key"),
        ("client-1.key", "a stranger's", "does not belong to the certificate"),
        ("ca.pem", "a stranger's", "was not signed by the CA"),
    ],
)
def test_a_wrong_file_is_reported_with_the_reason(
    certificates: Certificates,
    strangers: Certificates,
    tmp_path: Path,
    name: str,
    content: str | None,
    words: str,
) -> None:
    strangers.client("client-1")
    other = content and (strangers.folder / name).read_bytes()
    found = content.encode() if content == "garbage" else other or None
    client = changed(certificates.client("client-1"), tmp_path, name, found)
    assert client.certificate
    for tls in (client, ServerTLS(client.certificate, client.key or Path(), client.ca)):
        with pytest.raises(CertificateError) as caught:
            tls.context()
        assert words in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_certificate_that_is_not_valid_yet_or_no_longer_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    own = certificates.client("client-1")
    with pytest.raises(CertificateError, match="give both"):
        ClientTLS(own.certificate, None, own.ca).context()
    with pytest.raises(CertificateError, match=r"late\.pem is valid only from"):
        valid_on(certificates, tmp_path, 1, 9).context()
    tls = valid_on(certificates, tmp_path)
    with pytest.raises(CertificateError, match="expired on"):
        tls.context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.certificate or "", tls.key)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        assert "expired" in tls_alert(listener, context)
        assert "has expired" in await_event(listener, ConnectionRejected).reason


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
        assert await_event(listener, ConnectionRejected).peer == "client-2"
        assert not listener.peers


def test_a_certificate_of_another_ca_is_refused_on_either_side(
    certificates: Certificates, strangers: Certificates
) -> None:
    stranger = strangers.client("client-1")
    assert "not trusted" in gave_up(certificates.server, stranger)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.folder / "ca.pem")
    context.load_cert_chain(stranger.certificate or "", stranger.key)
    with Listener("127.0.0.1:0", CODEC, tls=certificates.server) as listener:
        assert "unknown ca" in tls_alert(listener, context)
        assert "not trusted" in await_event(listener, ConnectionRejected).reason


def tls_alert(listener: Listener, context: ssl.SSLContext) -> str:
    """The server's TLS alert to a client; under TLS 1.3 it arrives at the first read."""
    with (
        dial(listener) as raw,
        pytest.raises(ssl.SSLError) as caught,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
    ):
        wrapped.recv(1)
    return str(caught.value)


def gave_up(server: ServerTLS | None, client: ClientTLS) -> str:
    """Why a client with these files gives up for good."""
    with (
        Listener("127.0.0.1:0", CODEC, tls=server) as listener,
        Connector(listener.address, "client-1", CODEC, tls=client) as connector,
    ):
        ended = await_event(connector, GaveUp)
        assert ended.final
        await_event(listener, ConnectionRejected)
        return ended.reason.replace(listener.address, "SERVER")


def test_a_client_learns_what_its_server_requires(certificates: Certificates) -> None:
    client, ca = certificates.client("client-1"), certificates.folder / "ca.pem"
    assert "is missing" in gave_up(certificates.server, ClientTLS(None, None, ca))
    assert "SERVER does not speak TLS" in gave_up(None, client)
    if not (certificates.folder / "elsewhere.pem").exists():
        make_server_certificate(certificates.folder, ["10.1.2.3"], file_name="elsewhere")
    own, key = (certificates.folder / f"elsewhere.{kind}" for kind in ("pem", "key"))
    assert "not for that name" in gave_up(ServerTLS(own, key, ca), client)


@pytest.mark.parametrize("code", [62, 64])  # of OpenSSL: host name, IP address
def test_the_server_is_named_whose_certificate_is_for_another_name(code: int) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "mismatch"
    assert "example.org:1 is not for that name (mismatch)" in explain(error, "example.org:1")


def test_both_ends_report_that_only_the_server_uses_tls(certificates: Certificates) -> None:
    limits = Limits(handshake_s=0.3)
    with (
        Listener("127.0.0.1:0", CODEC, tls=certificates.server, limits=limits) as listener,
        Connector(listener.address, "client-1", CODEC, backoff=QUICK) as connector,
    ):
        assert "requires TLS" in await_event(listener, ConnectionRejected).reason
        assert "a server with TLS" in await_event(connector, Retrying).reason
