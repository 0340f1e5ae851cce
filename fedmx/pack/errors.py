"""The errors of packs."""

from __future__ import annotations

from fedmx.errors import FedmxError


class PackError(FedmxError):
    """A pack cannot be made, read or verified; or it is not what was packed."""
