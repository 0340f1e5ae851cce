"""TLS files that change while they are in use: what was made of them is made again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from layers.network.errors import CertificateError
from layers.network.trust.tls import ClientTLS, ServerTLS, serial_number

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
