"""TLS for both ends: its files, what is checked, and how a failure is explained."""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from layers.network.certificates import read_crl
from layers.network.errors import BOTH_OR_NEITHER, CertificateError


@dataclass(frozen=True)
class ServerTLS:
    """A server's certificate and key, and the CA whose clients it lets in.

    With `mutual` every client must show a certificate of that CA; its common name is its identity.
    `crl` is the CA's list of the certificates that it has revoked, None for no list. `ca` may hold
    several authorities, one after the other.
    """

    certificate: Path
    key: Path
    ca: Path
    mutual: bool = True
    crl: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for accepted connections.

        Raises:
            CertificateError: a file is missing, unreadable, expired, or does not fit the others.
        """
        context = _context(ssl.PROTOCOL_TLS_SERVER, self.certificate, self.key, self.ca)
        context.sslobject_class = AlertingSSLObject
        context.verify_mode = ssl.CERT_REQUIRED if self.mutual else ssl.CERT_NONE
        context.num_tickets = 0  # a session that is resumed would show no certificate
        return context

    def revoked(self) -> frozenset[int]:
        """Return the serial numbers of the revoked certificates.

        Raises:
            CertificateError: the list is missing, unreadable, or no authority of `ca` signed it.
        """
        return frozenset() if self.crl is None else read_crl(self.crl, _authorities(self.ca))


@dataclass(frozen=True)
class ClientTLS:
    """A client's certificate and key, and the CA that must have signed the server's certificate."""

    certificate: Path | None
    key: Path | None
    ca: Path

    def context(self) -> ssl.SSLContext:
        """Return the context for connecting; the server's name or IP address is checked.

        Raises:
            CertificateError: a file is missing, unreadable, expired, or does not fit the others.
        """
        return _context(ssl.PROTOCOL_TLS_CLIENT, self.certificate, self.key, self.ca)


FAILURES: ContextVar[list[ssl.SSLError]] = ContextVar("FAILURES")
CALLS_AFTER_FAILURE = 4  # each one takes what was read at once, a quarter of a MiB at the most


class AlertingSSLObject(ssl.SSLObject):
    """An SSL object that tells the peer why a handshake failed.

    When a handshake raises, asyncio drops the alert that TLS has for the peer. So a handshake that
    fails says that it needs more data. asyncio then sends the alert, and waits until the peer
    closes or the time for the handshake is over. A peer that goes on to send is not waited for:
    nobody reads what it sends, and it would stay in memory. The first error is put into `FAILURES`,
    which the caller has set to a list in the context of its task. The caller clears the list: the
    traceback of an error holds what was received.
    """

    _failed = False
    _calls_after_failure = 0

    def do_handshake(self) -> None:
        """Continue the handshake.

        Raises:
            ssl.SSLError: more data is needed, or the peer sends on after the handshake has failed.
        """
        if self._failed:
            self._calls_after_failure += 1
            if self._calls_after_failure > CALLS_AFTER_FAILURE:
                # The first error: asyncio takes those of later calls for "more data is needed".
                raise next(iter(FAILURES.get([])), ssl.SSLError("the handshake had failed"))
            raise _alert_waits()
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failed = True
            FAILURES.get([]).append(error)
            raise _alert_waits() from None


def _alert_waits() -> ssl.SSLWantReadError:
    return ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "an alert is to be sent")


def explain(error: ssl.SSLError, where: str) -> str:
    """Return one line on what a failed TLS handshake means and what to do."""
    text = str(error).lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message
        if "mismatch" in message.lower():
            return (
                f"the certificate of {where} is not for that name ({message}): use a name that is "
                "in it, or make one for this name"
            )
        if "expired" in message.lower():
            return f"the certificate of {where} has expired: make a new one"
        return f"the certificate of {where} is not trusted ({message}): give its CA"
    reasons = {
        "unknown_ca": "is not signed by the CA that the other end trusts: make it with that CA",
        "unknown ca": "is not signed by the CA that the other end trusts: make it with that CA",
        "certificate_expired": "has expired: make a new one",
        "certificate expired": "has expired: make a new one",
        "certificate_required": "is missing and the other end wants one: give one",
        "certificate required": "is missing and the other end wants one: give one",
        "did_not_return_a_certificate": "is missing: the client must be given one",
        "did not return a certificate": "is missing: the client must be given one",
        "bad_certificate": "was refused by the other end",
        "bad certificate": "was refused by the other end",
    }
    for sign, meaning in reasons.items():
        if sign in text:
            return f"{where}: the certificate shown {meaning}"
    if "wrong_version_number" in text or "http_request" in text or "wrong version" in text:
        return f"{where} does not speak TLS: {BOTH_OR_NEITHER}"
    return f"{where}: TLS failed ({error.reason or error})"


def is_final(error: ssl.SSLError) -> bool:
    """Return whether the handshake will fail again: the error is about trust, not the network."""
    text = str(error).lower()
    return isinstance(error, ssl.SSLCertVerificationError) or any(
        sign in text for sign in ("certificate", "unknown_ca", "unknown ca", "wrong_version")
    )


def serial_number(certificate: dict[str, object] | None) -> int | None:
    """Return the serial number of a certificate as `SSLSocket.getpeercert` gives it."""
    serial = (certificate or {}).get("serialNumber")
    return int(serial, 16) if isinstance(serial, str) else None


def common_name(certificate: dict[str, object] | None) -> str | None:
    """Return the common name of a certificate as `SSLSocket.getpeercert` gives it."""
    subject = (certificate or {}).get("subject", ())
    names = [value for rdn in subject for key, value in rdn if key == "commonName"]  # type: ignore[attr-defined]
    return names[0] if len(names) == 1 else None


def _context(protocol: int, certificate: Path | None, key: Path | None, ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authorities = _authorities(ca)
    context.load_verify_locations(ca)
    if (certificate is None) != (key is None):
        raise CertificateError("a certificate needs its key and a key its certificate: give both")
    if certificate is not None and key is not None:
        own = _certificate(certificate)
        _check_key(own, certificate, key)
        if not any(_has_signed(authority, own) for authority in authorities):
            raise CertificateError(
                f"{certificate} was not signed by the CA {ca}: make it with that CA"
            )
        context.load_cert_chain(certificate, key)
    return context


def _read(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{path} cannot be read ({error.strerror}): make certificates with fedmx certs"
        ) from None


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _authorities(path: Path) -> list[x509.Certificate]:
    return [_valid(authority, path) for authority in _certificates(path)]


def _certificate(path: Path) -> x509.Certificate:
    return _valid(_certificates(path)[0], path)


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise CertificateError(f"{path} is not a certificate in PEM format") from None


def _valid(certificate: x509.Certificate, path: Path) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    if now > certificate.not_valid_after_utc:
        day = certificate.not_valid_after_utc.date()
        raise CertificateError(f"the certificate {path} expired on {day}: make a new one")
    if now < certificate.not_valid_before_utc:
        day = certificate.not_valid_before_utc
        raise CertificateError(
            f"the certificate {path} is valid only from {day:%Y-%m-%d %H:%M} UTC: check the clock"
        )
    return certificate


def _check_key(certificate: x509.Certificate, path: Path, key_path: Path) -> None:
    try:
        key = load_pem_private_key(_read(key_path), password=None)
    except (ValueError, TypeError):
        raise CertificateError(f"{key_path} is not an unencrypted private key in PEM") from None
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"the key {key_path} does not belong to the certificate {path}")


T = TypeVar("T")


class Renewed(Generic[T]):
    """A value made of files, and made again when one of them has changed.

    Args:
        files: the files.
        make: makes the value, or raises `CertificateError`.

    Attributes:
        value: what was made last; files that cannot be used do not change it.

    Raises:
        CertificateError: it cannot be made for the first time.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._files = tuple(files)
        self._make = make
        self._used = self._stamps()
        self._failed: object = None
        self._reported: object = None
        self.value = make()

    def check(self, patient: bool = True) -> bool:
        """Return whether the files have changed and the value was made again.

        With `patient`, files that cannot be used are looked at once more, at the next call: whoever
        replaces two files replaces one of them first.

        Raises:
            CertificateError: they have changed and cannot be used; said once for each change.
        """
        stamps = self._stamps()
        if stamps in (self._used, self._reported):
            return False
        try:
            value = self._make()
        except (CertificateError, OSError) as error:
            if patient and stamps != self._failed:
                self._failed = stamps
                return False
            self._reported = stamps
            raise CertificateError(str(error)) from error
        self.value, self._used, self._failed, self._reported = value, stamps, None, None
        return True

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)


class ServerTrust:
    """The TLS files of a server in use.

    Raises:
        CertificateError: something is wrong with the files.
    """

    def __init__(self, tls: ServerTLS) -> None:
        own = (tls.certificate, tls.key, tls.ca)
        self._context = Renewed(own, tls.context)
        listed = () if tls.crl is None else (tls.crl, tls.ca)
        self._revoked = Renewed(listed, tls.revoked)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context.value

    def is_revoked(self, certificate: dict[str, object] | None) -> bool:
        """Return whether a client's certificate, as `getpeercert` gives it, was revoked."""
        return serial_number(certificate) in self._revoked.value

    def check(self, patient: bool = True) -> tuple[list[str], list[str]]:
        """Read again what has changed; return what is new, and what cannot be used and why."""
        return _check({"certificate": self._context, "revocation list": self._revoked}, patient)


class ClientTrust:
    """The TLS files of a client in use; see `ServerTrust`."""

    def __init__(self, tls: ClientTLS) -> None:
        files = [path for path in (tls.certificate, tls.key, tls.ca) if path is not None]
        self._context = Renewed(files, tls.context)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context.value

    def check(self) -> tuple[list[str], list[str]]:
        """Read again what has changed; return what is new, and what cannot be used and why."""
        return _check({"certificate": self._context}, False)


def _check(parts: dict[str, Renewed], patient: bool) -> tuple[list[str], list[str]]:
    new, problems = [], []
    for name, part in parts.items():
        try:
            if part.check(patient):
                new.append(name)
        except CertificateError as error:
            problems.append(str(error))
    return new, problems


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or written; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
