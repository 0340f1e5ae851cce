"""A private certificate authority: its certificates and its revocation list (RFC 5280)."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layers.network.errors import AuthenticationFailed, CertificateError
from layers.network.limits import check_identity

CA_NAME = "ca"
SERVER_NAME = "server"
BACKDATE = datetime.timedelta(minutes=10)  # for clocks that are slow


@dataclass(frozen=True)
class CertificateFiles:
    """Where a certificate and its private key (mode 0600) were written, as PEM."""

    certificate: Path
    key: Path


def make_ca(folder: Path, *, days: int = 3650) -> CertificateFiles:
    """Make a certificate authority: FOLDER/ca.pem and FOLDER/ca.key.

    Raises:
        CertificateError: one of the files exists already, or cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("fedmx private CA")
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _write(Path(folder), CA_NAME, builder.sign(key, hashes.SHA256()), key)


def server_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return the extension with a server's DNS names and IP addresses.

    Raises:
        CertificateError: there is none, or one is neither.
    """
    if not names:
        raise CertificateError("a server certificate needs at least one name or IP address")
    return x509.SubjectAlternativeName([_general_name(name) for name in names])


def make_server_certificate(
    folder: Path,
    names: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
    *,
    days: int = 825,
    file_name: str = SERVER_NAME,
) -> CertificateFiles:
    """Make a server certificate for DNS names and IP addresses: FOLDER/server.pem and .key.

    Raises:
        CertificateError: no CA in the folder, no or bad names, or one of the files exists already.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = server_names(names)
    certificate = issue(Path(folder), names[0][:64], key.public_key(), alternatives, days)
    return _write(Path(folder), file_name, certificate, key)


def make_client_certificate(
    folder: Path, identity: str, *, days: int = 825, role: str | None = None
) -> CertificateFiles:
    """Make a client certificate whose common name is `identity`: FOLDER/IDENTITY.pem and .key.

    Its organizational unit is the role; None: it has none.

    Raises:
        CertificateError: no CA in the folder, a bad identity, or one of the files exists already.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = client_name(identity)
    certificate = issue(Path(folder), name, key.public_key(), None, days, role)
    return _write(Path(folder), identity, certificate, key)


def common_name_of(path: Path) -> str:
    """Return the common name in a certificate (PEM).

    Raises:
        CertificateError: it cannot be read, or has not exactly one.
    """
    (certificate, *_) = load_pem(
        path, x509.load_pem_x509_certificates, "a certificate", "make certificates with fedmx certs"
    )
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise CertificateError(f"{path}: its certificate has not one name, but {len(names)}")
    return str(names[0].value)


def client_name(identity: str) -> str:
    """Return an identity if a client can have it.

    Raises:
        CertificateError: it cannot, or the authority's folder has other files of this name.
    """
    if identity in (CA_NAME, SERVER_NAME, CRL_NAME.removesuffix(".pem")):
        raise CertificateError(f"{identity} is a name in the authority's folder: take another one")
    try:
        check_identity(identity)
    except AuthenticationFailed as error:
        raise CertificateError(str(error)) from None
    return identity


def issue(
    folder: Path,
    common_name: str,
    key: ec.EllipticCurvePublicKey,
    alternatives: x509.SubjectAlternativeName | None,
    days: int,
    role: str | None = None,
) -> x509.Certificate:
    """Return a certificate signed by the authority in a folder.

    Args:
        folder: the folder of the authority.
        common_name: the name of its subject.
        key: its public key.
        alternatives: the names of a server; None: it is a client's certificate.
        days: its validity.
        role: the organizational unit of its subject; None: none.

    Raises:
        CertificateError: there is no authority, or less than a day.
    """
    authority, authority_key = authority_of(folder)
    usage = ExtendedKeyUsageOID
    builder = _builder(_name(common_name, role), authority.subject, key, days)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    one = usage.CLIENT_AUTH if alternatives is None else usage.SERVER_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([one]), critical=False)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def authority_of(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of the authority in a folder.

    Raises:
        CertificateError: there is none, or it is damaged.
    """
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{CA_NAME}.pem").read_bytes())
        key = load_pem_private_key((folder / f"{CA_NAME}.key").read_bytes(), password=None)
    except OSError as error:
        raise CertificateError(
            f"{folder} has no usable CA ({error.strerror}: {error.filename}): make one first"
        ) from None
    except (ValueError, TypeError):
        raise CertificateError(f"{folder}: ca.pem or ca.key is damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{folder}/ca.key is not an elliptic-curve key")
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    if days < 1:
        raise CertificateError(f"a certificate must be valid for at least 1 day, not {days}")
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(common_name: str, role: str | None = None) -> x509.Name:
    values = {NameOID.COMMON_NAME: common_name, NameOID.ORGANIZATIONAL_UNIT_NAME: role}
    return x509.Name([x509.NameAttribute(key, value) for key, value in values.items() if value])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode("ascii"))
    except (UnicodeError, ValueError):
        raise CertificateError(f"{name!r} is neither a host name nor an IP address") from None


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> CertificateFiles:
    files = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key")
    write_with_key(files.certificate, certificate.public_bytes(Encoding.PEM), files.key, key)
    return files


def write_with_key(
    path: Path, content: bytes, key_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    """Write a private key (mode 0600) and its certificate or request; replace neither.

    Raises:
        CertificateError: one of the files exists already, or cannot be written.
    """
    for one in (path, key_path):
        if one.exists():
            raise CertificateError(
                f"{one} exists already: move it away first, or take another name"
            )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _create(key_path, secret, 0o600)
        _create(path, content, 0o644)
    except OSError as error:
        raise CertificateError(f"{error.filename} cannot be written: {error.strerror}") from None


def _create(path: Path, content: bytes, mode: int) -> None:
    """Create a file with this mode from the start; never replace a file."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


T = TypeVar("T")
CRL_NAME = "crl.pem"


def make_crl(folder: Path) -> Path:
    """Make an empty revocation list, FOLDER/crl.pem, signed by the authority in the folder.

    Raises:
        CertificateError: no authority in the folder, or the list exists already.
    """
    path = Path(folder) / CRL_NAME
    with locked(path.parent):
        if path.exists():
            raise CertificateError(f"{path} exists already and stays as it is")
        _replace(path, [], 1)
    return path


def revoke(folder: Path, certificates: Sequence[Path]) -> Path:
    """Add client certificates (PEM) to FOLDER/crl.pem, which is made if it is missing.

    The list is replaced atomically.

    Raises:
        CertificateError: no authority in the folder; a file that is not a client's certificate of
            this authority; or a damaged list. The list stays unchanged.
    """
    path = Path(folder) / CRL_NAME
    with locked(path.parent):
        authority, _ = authority_of(path.parent)
        serials = [_serial_of(file, authority) for file in certificates]
        entries, number = [], 1
        if path.exists():
            lists = _verified(path, [authority])
            if len(lists) > 1:
                raise CertificateError(f"{path} has {len(lists)} lists: revoke in a file with one")
            entries, number = list(lists[0]), 1 + _number_of(lists[0])
        known = {entry.serial_number for entry in entries}
        now = datetime.datetime.now(datetime.timezone.utc)
        for serial in dict.fromkeys(serials):
            if serial not in known:
                entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
                entries.append(entry.build())
        _replace(path, entries, number)
    return path


Newest: TypeAlias = "dict[bytes, tuple[int, datetime.datetime]]"
"""The number and the date of the newest list that was read, by the public key of its authority.

Authorities may share a name: `make_ca` gives all of them the same one.
"""


def read_crl(path: Path, authorities: Sequence[x509.Certificate], newest: Newest) -> frozenset[int]:
    """Return the serial numbers in a file's lists, each signed by one of the authorities.

    The date of the next list (`nextUpdate`) is ignored: an old list is better than none, and must
    not lock out everybody.

    Args:
        path: the file.
        authorities: the certificates of the authorities.
        newest: the lists that were read before; those of the file are added.

    Raises:
        CertificateError: the file cannot be read, no authority has signed one of its lists, or one
            is older than a list that was read before, or is missing.
    """
    lists = _verified(path, authorities)
    found, signers = dict(newest), set()
    for crl in lists:
        signer = next(_public_key(one) for one in authorities if has_signed(one, crl))
        signers.add(signer)
        number, date = _number_of(crl), crl.last_update_utc
        known_number, known_date = newest.get(signer, (number, date))
        if number < known_number or date < known_date:
            raise CertificateError(
                f"{path} is an older revocation list (number {number} of {date:%Y-%m-%d %H:%M}) "
                f"than the one in use (number {known_number} of {known_date:%Y-%m-%d %H:%M}): "
                "put back the newest one, or restart the server to use this one"
            )
        found[signer] = max(found.get(signer, (number, date)), (number, date))
    if missing := newest.keys() & {_public_key(one) for one in authorities} - signers:
        raise CertificateError(
            f"{path} lacks {len(missing)} of the lists in use, of an authority that is still "
            "trusted: put it back, or restart the server to use this file"
        )
    newest.update(found)
    return frozenset(entry.serial_number for crl in lists for entry in crl)


def _verified(
    path: Path, authorities: Sequence[x509.Certificate]
) -> list[x509.CertificateRevocationList]:
    """Return the lists in a file, such as those of two authorities; all of them count."""
    kind, advice = "a revocation list (CRL)", "make it with fedmx certs crl"
    lists = load_pem(path, _lists_in, kind, advice)
    for crl in lists:
        if not any(has_signed(authority, crl) for authority in authorities):
            which = "" if len(lists) == 1 else f", list {lists.index(crl) + 1} of {len(lists)},"
            raise CertificateError(
                f"{path}{which} was not signed by the CA: make it with that CA's key"
            )
    return lists


def _lists_in(content: bytes) -> list[x509.CertificateRevocationList]:
    """Return the lists in PEM text; text between them is a comment.

    Raises:
        ValueError: there is none, one is damaged, or there is another kind of block.
    """
    begin = b"-----BEGIN X509 CRL-----"
    first, *rest = content.split(begin)
    if not rest or any(b"-----BEGIN" in one for one in (first, *rest)):
        raise ValueError("no list, or another block")
    return [x509.load_pem_x509_crl(begin + one) for one in rest]


def next_updates(path: Path) -> list[datetime.datetime]:
    """Return the dates at which the next lists after those in a file are due, in UTC.

    Raises:
        CertificateError: the file cannot be read, or is no revocation list.
    """
    lists = load_pem(path, _lists_in, "a revocation list (CRL)", "make it with fedmx certs crl")
    return [crl.next_update_utc for crl in lists if crl.next_update_utc is not None]


def has_signed(
    authority: x509.Certificate, signed: x509.Certificate | x509.CertificateRevocationList
) -> bool:
    """Return whether an authority has signed a certificate or a list."""
    with contextlib.suppress(TypeError, ValueError, InvalidSignature):
        if isinstance(signed, x509.Certificate):
            signed.verify_directly_issued_by(authority)
            return True
        if signed.issuer == authority.subject:
            return signed.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    return False


def _public_key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _number_of(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a list, 0 if it has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def load_pem(path: Path, load: Callable[[bytes], T], kind: str, advice: str) -> T:
    """Return the result of `load` for a file's content.

    Raises:
        CertificateError: the file cannot be read (with `advice`), or is not of this kind.
    """
    try:
        return load(Path(path).read_bytes())
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror}): {advice}") from None
    except (ValueError, TypeError):
        raise CertificateError(f"{path} is not {kind} in PEM format") from None


def _serial_of(path: Path, authority: x509.Certificate) -> int:
    kind, advice = "a certificate", "give the certificate to revoke"
    certificate = load_pem(path, x509.load_pem_x509_certificate, kind, advice)
    if not has_signed(authority, certificate):
        raise CertificateError(f"{path} was not signed by this CA, which cannot revoke it")
    with contextlib.suppress(x509.ExtensionNotFound):
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
            raise CertificateError(
                f"{path} is not a client's certificate: only servers read the list, so make a new "
                "authority to exclude a server"
            )
    return certificate.serial_number


def _replace(path: Path, entries: Sequence[x509.RevokedCertificate], number: int) -> None:
    authority, key = authority_of(path.parent)
    now = datetime.datetime.now(datetime.timezone.utc)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - BACKDATE)
        .next_update(max(authority.not_valid_after_utc, now + datetime.timedelta(days=1)))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(issuer, critical=False)
    )
    for entry in entries:
        builder = builder.add_revoked_certificate(entry)
    replace(path, builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def replace(path: Path, content: bytes) -> None:
    """Write a file, or replace it atomically.

    Raises:
        CertificateError: it cannot be written.
    """
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CertificateError(f"{path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder while its files change, so that concurrent changes do not get lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CertificateError(
            f"{folder} has no usable CA ({error.strerror}): make one first"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
