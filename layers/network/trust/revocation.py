"""Certificate revocation lists (RFC 5280, section 5) of a private authority."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from layers.network.errors import CertificateError
from layers.network.trust.certificates import BACKDATE, authority_of

T = TypeVar("T")
CRL_NAME = "crl.pem"


def make_crl(folder: Path) -> Path:
    """Make an empty list, FOLDER/crl.pem, signed by the authority in the folder.

    Raises:
        CertificateError: no authority in the folder, or the list is there already.
    """
    path = Path(folder) / CRL_NAME
    with _locked(path.parent):
        if path.exists():
            raise CertificateError(f"{path} exists already and stays as it is")
        _replace(path, [], 1)
    return path


def revoke(folder: Path, certificates: Sequence[Path]) -> Path:
    """Add client certificates (PEM) to FOLDER/crl.pem, which is made if it is missing.

    The list is replaced as a whole, so a server that watches it never reads half of it.

    Raises:
        CertificateError: no authority in the folder; a file that is not a client's certificate of
            this authority; or a list that is damaged. The list is unchanged then.
    """
    path = Path(folder) / CRL_NAME
    with _locked(path.parent):
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


def read_crl(path: Path, authorities: Sequence[x509.Certificate]) -> frozenset[int]:
    """Return the serial numbers in a file's lists, each signed by one of the authorities.

    The date of the next list (`nextUpdate`) is not looked at: a list that is old is better than
    none, and must not lock out everybody.

    Raises:
        CertificateError: the file cannot be read, or no authority has signed one of its lists.
    """
    lists = _verified(path, authorities)
    return frozenset(entry.serial_number for crl in lists for entry in crl)


def _verified(
    path: Path, authorities: Sequence[x509.Certificate]
) -> list[x509.CertificateRevocationList]:
    """Return the lists in a file; all of them count, as with two authorities."""
    kind, what_to_do = "a revocation list (CRL)", "make it with fedmx certs crl"
    lists = _loaded(path, _lists_in, kind, what_to_do)
    for crl in lists:
        if not any(_has_signed(authority, crl) for authority in authorities):
            which = "" if len(lists) == 1 else f", list {lists.index(crl) + 1} of {len(lists)},"
            raise CertificateError(
                f"{path}{which} was not signed by the CA: make it with that CA's key"
            )
    return lists


def _lists_in(content: bytes) -> list[x509.CertificateRevocationList]:
    """Return the lists that PEM text holds; text between them is a comment.

    Raises:
        ValueError: there is none, one is damaged, or there is another block than lists.
    """
    begin = b"-----BEGIN X509 CRL-----"
    first, *rest = content.split(begin)
    if not rest or any(b"-----BEGIN" in one for one in (first, *rest)):
        raise ValueError("no list, or another block")
    return [x509.load_pem_x509_crl(begin + one) for one in rest]


def _has_signed(authority: x509.Certificate, crl: x509.CertificateRevocationList) -> bool:
    with contextlib.suppress(TypeError, ValueError, InvalidSignature):
        if crl.issuer == authority.subject:
            return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    return False


def _number_of(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a list; 0 for one of another program that has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def _loaded(path: Path, load: Callable[[bytes], T], kind: str, what_to_do: str) -> T:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror}): {what_to_do}") from None
    except ValueError:
        raise CertificateError(f"{path} is not {kind} in PEM format") from None


def _serial_of(path: Path, authority: x509.Certificate) -> int:
    kind, what_to_do = "a certificate", "give the certificate that is to be revoked"
    certificate = _loaded(path, x509.load_pem_x509_certificate, kind, what_to_do)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise CertificateError(
            f"{path} was not signed by this CA, which cannot revoke it"
        ) from None
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
    content = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
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
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder while its list changes, so that of two changes at once none is lost."""
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
