"""Addresses: HOST:PORT, and which of them leave this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from layers.network.errors import AddressError

NO_NAME = "no host can have this name"  # looking it up raises a UnicodeError


@dataclass(frozen=True)
class Address:
    """Where a server listens; `str` gives HOST:PORT, with brackets around an IPv6 host."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT or [IPV6]:PORT.

        Raises:
            AddressError: it is neither.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host and not bracketed) or " " in host:
            raise AddressError(
                f"address {text!r}: write HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000"
            )
        if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
            raise AddressError(f"address {text!r}: the port must be a number from 0 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is known to be on this machine, without asking a name server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_safe(self, *, tls: bool, insecure: bool) -> None:
        """Check that nothing is sent unencrypted off this machine, unless `insecure`.

        Raises:
            AddressError: there is no TLS, the address is not loopback, and `insecure` is False.
        """
        if not (tls or insecure or self.is_loopback):
            raise AddressError(
                f"{self} is not on this machine and there is no TLS: make certificates "
                "(fedmx certs) and give them, or say insecure: true"
            )
