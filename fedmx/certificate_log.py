"""The log lines about TLS files that change or end, the same at a server and a client."""

from __future__ import annotations

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
