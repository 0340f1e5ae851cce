"""TLS of both ends: its files, their renewal, the checks, and explanations of failures."""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from layers.network.certificates import Newest, has_signed, load_pem, next_updates, read_crl
from layers.network.errors import BOTH_OR_NEITHER, CertificateError
from layers.network.events import CertificatesRefused, CertificatesRenewed
from layers.network.expiry import (
    REVOCATION_LIST,
    CertificateExpires,
    Expiry,
    Reminder,
    utc_now,
)

PROTOCOL = "fedmx"
ADVICE = "make certificates with fedmx certs"
RENEW = "make a new one with fedmx certs request, and sign it with fedmx certs sign --again"
RENEW_CA = "make a new authority with fedmx certs ca, and new certificates with it"


@dataclass(frozen=True)
class ServerTLS:
    """A server's certificate and key, and the CA of its clients.

    With `mutual` every client must show a certificate of that CA; its common name is its identity.
    `crl` is the CA's list of revoked certificates, if any. `ca` may contain several authorities.
    Methods raise CertificateError if a file is missing, unreadable, expired, not signed by the CA,
    or does not match the others.
    """

    certificate: Path
    key: Path
    ca: Path
    mutual: bool = True
    crl: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for accepted connections."""
        context = _context(ssl.PROTOCOL_TLS_SERVER, self.certificate, self.key, self.ca)
        context.sslobject_class = AlertingSSLObject
        context.verify_mode = ssl.CERT_REQUIRED if self.mutual else ssl.CERT_NONE
        context.num_tickets = 0  # a resumed session would show no certificate
        return context

    def revoked(self, newest: Newest | None = None) -> frozenset[int]:
        """Return the serial numbers of the revoked certificates; see `read_crl`."""
        if self.crl is None:
            return frozenset()
        return read_crl(self.crl, _authorities(self.ca), {} if newest is None else newest)

    def ends(self) -> tuple[Expiry, ...]:
        """Return when the certificates end, and when the next revocation list is due."""
        lists = () if self.crl is None else _ends(REVOCATION_LIST, self.crl, next_updates(self.crl))
        return *_ends_of(self.certificate, self.ca), *lists


@dataclass(frozen=True)
class ClientTLS:
    """A client's certificate and key, if any, and the CA of its server; see `ServerTLS`.

    `protocol` is what it asks for (ALPN), by which one port can serve several processes.
    """

    certificate: Path | None
    key: Path | None
    ca: Path
    protocol: str = PROTOCOL

    def context(self) -> ssl.SSLContext:
        """Return the context for connecting; it checks the server's name or IP address."""
        context = _context(ssl.PROTOCOL_TLS_CLIENT, self.certificate, self.key, self.ca)
        context.set_alpn_protocols([self.protocol])
        return context

    def ends(self) -> tuple[Expiry, ...]:
        """Return when the certificates end."""
        return _ends_of(self.certificate, self.ca)


FAILURES: ContextVar[list[ssl.SSLError]] = ContextVar("FAILURES")
CALLS_AFTER_FAILURE = 4  # each one reads a few KiB


class AlertingSSLObject(ssl.SSLObject):
    """An SSL object that tells the peer why a handshake failed.

    When a handshake raises, asyncio drops the TLS alert for the peer. So a failed handshake claims
    that it needs more data: asyncio sends the alert, and waits until the peer closes or the time
    for the handshake is over. A peer that keeps sending is cut off, because nobody reads its bytes
    and they would stay in memory. The first error goes to `FAILURES`, a list that the caller sets
    in the context of its task, and must clear: the error's traceback holds received bytes.
    """

    _failed = False
    _calls_after_failure = 0

    def do_handshake(self) -> None:
        """Continue the handshake.

        Raises:
            ssl.SSLError: more data is needed, or the peer keeps sending after a failed handshake.
        """
        if self._failed:
            self._calls_after_failure += 1
            if self._calls_after_failure > CALLS_AFTER_FAILURE:
                # The first error: asyncio mistakes those of later calls for "more data is needed".
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


NOT_YET_VALID, EXPIRED = 9, 10  # verify codes of OpenSSL (X509_V_ERR_...)
WRONG_NAMES = {62, 64}  # host name, IP address
ALERTS = {
    "UNKNOWN_CA": "is not signed by the CA that the peer trusts: make it with that CA",
    "CERTIFICATE_EXPIRED": f"has expired: {RENEW}",
    "CERTIFICATE_REQUIRED": "is missing, but the peer requires one: give one",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "is missing: the client must be given one",
    "BAD_CERTIFICATE": "was refused by the peer",
}
NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}


def explain(error: ssl.SSLError, where: str) -> str:
    """Return one line that explains a failed TLS handshake, with advice."""
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message
        if error.verify_code in WRONG_NAMES:
            return (
                f"the certificate of {where} is not for that name ({message}): use a name that is "
                "in it, or make one for this name"
            )
        if error.verify_code == EXPIRED:
            return f"the certificate of {where}, or its CA, has expired: make a new one there"
        return f"the certificate of {where} is not trusted ({message}): give its CA"
    reason = error.reason or ""
    meaning = ALERTS.get(reason.rpartition("_ALERT_")[2])
    if meaning is not None:
        return f"{where}: the certificate shown {meaning}"
    if reason in NO_TLS:
        return f"{where} does not speak TLS: {BOTH_OR_NEITHER}"
    return f"{where}: TLS failed ({error.reason or error})"


def is_final(error: ssl.SSLError) -> bool:
    """Return whether the handshake will fail again: the error is about trust, not the network.

    The peer may replace a certificate that is not valid at this time.
    """
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_code not in (NOT_YET_VALID, EXPIRED)
    return any(sign in reason for sign in ("CERTIFICATE", "UNKNOWN_CA", "WRONG_VERSION_NUMBER"))


def serial_number(certificate: dict[str, object] | None) -> int | None:
    """Return the serial number of a certificate as `SSLSocket.getpeercert` gives it."""
    serial = (certificate or {}).get("serialNumber")
    return int(serial, 16) if isinstance(serial, str) else None


def common_name(certificate: dict[str, object] | None) -> str | None:
    """Return the common name of a certificate as `SSLSocket.getpeercert` gives it."""
    subject = (certificate or {}).get("subject", ())
    names = [value for rdn in subject for key, value in rdn if key == "commonName"]  # type: ignore[attr-defined]
    return names[0] if len(names) == 1 else None


def role(certificate: dict[str, object] | None) -> str | None:
    """Return the organizational unit of a certificate as `SSLSocket.getpeercert` gives it."""
    subject = (certificate or {}).get("subject", ())
    names = [value for rdn in subject for key, value in rdn if key == "organizationalUnitName"]  # type: ignore[attr-defined]
    return names[0] if len(names) == 1 else None


def _context(protocol: int, certificate: Path | None, key: Path | None, ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authorities = _authorities(ca)
    context.load_verify_locations(ca)
    if (certificate is None) != (key is None):
        raise CertificateError("a certificate needs its key and a key its certificate: give both")
    if certificate is not None and key is not None:
        own = _valid(_certificates(certificate)[0], certificate)
        _check_key(own, certificate, key)
        if not any(has_signed(authority, own) for authority in authorities):
            raise CertificateError(
                f"{certificate} was not signed by the CA {ca}: make it with that CA"
            )
        context.load_cert_chain(certificate, key)
    return context


def _authorities(path: Path) -> list[x509.Certificate]:
    return [_valid(authority, path, RENEW_CA) for authority in _certificates(path)]


def _certificates(path: Path) -> list[x509.Certificate]:
    return load_pem(path, x509.load_pem_x509_certificates, "a certificate", ADVICE)


def _ends_of(certificate: Path | None, ca: Path) -> tuple[Expiry, ...]:
    files = [("certificate", certificate), ("authority", ca)]
    return tuple(
        end
        for what, path in files
        if path is not None
        for end in _ends(what, path, [one.not_valid_after_utc for one in _certificates(path)])
    )


def _ends(what: str, path: Path, dates: Iterable[datetime.datetime]) -> tuple[Expiry, ...]:
    return tuple(Expiry(what, path, date) for date in sorted(dates)[:1])


def _valid(certificate: x509.Certificate, path: Path, renew: str = RENEW) -> x509.Certificate:
    now = utc_now()
    if now > certificate.not_valid_after_utc:
        day = certificate.not_valid_after_utc.date()
        raise CertificateError(f"the certificate {path} expired on {day}: {renew}")
    if now < certificate.not_valid_before_utc:
        day = certificate.not_valid_before_utc
        raise CertificateError(
            f"the certificate {path} is valid only from {day:%Y-%m-%d %H:%M} UTC: check the clock"
        )
    return certificate


def _check_key(certificate: x509.Certificate, path: Path, key_path: Path) -> None:
    kind = "an unencrypted private key"
    key = load_pem(key_path, lambda text: load_pem_private_key(text, None), kind, ADVICE)
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"the key {key_path} does not belong to the certificate {path}")


T = TypeVar("T")


class Renewed(Generic[T]):
    """A value made from files, and made again when one of them has changed.

    Args:
        files: the files.
        make: makes the value, or raises `CertificateError`.

    Attributes:
        value: the last value; unusable files do not change it.

    Raises:
        CertificateError: the first value cannot be made.
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

        If `patient`, unusable files get a second chance at the next call: two files are not
        replaced at the same instant.

        Raises:
            CertificateError: they have changed and are unusable; raised once for each change.
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


CertificateEvent: TypeAlias = "CertificatesRenewed | CertificatesRefused | CertificateExpires"


class Trust:
    """The TLS files of a server or client, which may change while they are in use.

    Attributes:
        ends: when the files in use end.

    Raises:
        CertificateError: a file is unusable.
    """

    def __init__(self, tls: ServerTLS | ClientTLS) -> None:
        own = [path for path in (tls.certificate, tls.key, tls.ca) if path is not None]
        self._context = Renewed(own, tls.context)
        self._revoked: Renewed[frozenset[int]] | None = None
        if isinstance(tls, ServerTLS) and tls.crl is not None:
            newest: Newest = {}
            self._revoked = Renewed((tls.crl, tls.ca), lambda: tls.revoked(newest))
        self._read_ends = tls.ends
        self._reminder = Reminder()
        self.ends = tls.ends()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context.value

    def is_revoked(self, certificate: dict[str, object] | None) -> bool:
        """Return whether a client's certificate, as `getpeercert` gives it, was revoked."""
        return self._revoked is not None and serial_number(certificate) in self._revoked.value

    def check(self, patient: bool) -> list[CertificateEvent]:
        """Read changed files again; return what happened, and the warnings that are due."""
        events: list[CertificateEvent] = []
        for name, part in (("certificate", self._context), ("revocation list", self._revoked)):
            try:
                if part is not None and part.check(patient):
                    events.append(CertificatesRenewed(name))
            except CertificateError as error:
                events.append(CertificatesRefused(str(error)))
        if any(isinstance(event, CertificatesRenewed) for event in events):
            with contextlib.suppress(CertificateError):  # the other file is being replaced
                self.ends = self._read_ends()
        return [*events, *self._reminder.due(self.ends, utc_now())]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file is replaced or written; None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
