"""The log lines about TLS files, the same at a server and a client."""

from __future__ import annotations

from pathlib import Path

from fedmx.log import Log
from layers.network import (
    CertificateExpires,
    CertificatesRefused,
    CertificatesRenewed,
)


def log_certificates(
    log: Log, event: CertificatesRenewed | CertificatesRefused | CertificateExpires
) -> None:
    """Log an event about TLS files."""
    match event:
        case CertificatesRenewed(what):
            log.info("certificates_renewed", "the {what} was read again and is used now", what=what)
        case CertificatesRefused(reason):
            log.warning(
                "certificates_refused",
                "{reason}; the one from before stays in use",
                reason=reason,
            )
        case CertificateExpires(reason=reason):
            log.warning("certificate_expires", "{reason}", reason=reason)


def warn_of_open_key(key: Path | None) -> None:
    """Warn of a private key that other users of the machine can read or change."""
    mode = 0 if key is None else key.stat().st_mode & 0o777
    if mode & 0o077:
        Log("fedmx.network").warning(
            "private_key_open",
            "{path}: its mode is {mode}, so that other users of this machine can use this private "
            "key; run chmod 600 {path}",
            path=key,
            mode=f"{mode:04o}",
        )
