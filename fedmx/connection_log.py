"""The log lines about a connection and its TLS files."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.log import Log
from layers.network import (
    CertificateExpires,
    CertificatesRefused,
    CertificatesRenewed,
    Connected,
    Connector,
    Disconnected,
    Event,
    Retrying,
)

AGAIN_S = 60.0


@dataclass
class ConnectionLog:
    """Logs what happens to the connection of a client or a site.

    Of attempts that fail for the same reason, it logs the first, and then one a minute.
    """

    log: Log
    network: Connector
    _reason: str = field(default="", init=False)
    _attempts: int = field(default=0, init=False)
    _logged_s: float = field(default=0.0, init=False)

    def handle(self, event: Event | None) -> None:
        """Log an event of the connection; another event changes nothing."""
        match event:
            case Connected():
                self._reason, self._attempts = "", 0
                self.log.info("connected", "connected to {address}", address=self.network.address)
            case Disconnected(reason=reason):
                self.log.warning("disconnected", "disconnected: {reason}", reason=reason)
            case Retrying(reason=reason):
                self._attempts += 1
                if reason == self._reason and time.monotonic() < self._logged_s + AGAIN_S:
                    return
                self._reason, self._logged_s = reason, time.monotonic()
                self.log.info(
                    "retrying",
                    "{reason}; trying again until it answers; attempts so far: {attempts}",
                    reason=reason,
                    attempts=self._attempts,
                )
            case CertificatesRenewed() | CertificatesRefused() | CertificateExpires():
                log_certificates(self.log, event)


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
