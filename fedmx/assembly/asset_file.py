"""An asset as the file that is sent to clients, whatever its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedmx.errors import FedmxError
from fedmx.protocol.messages import AnnouncedAsset
from fedmx.run.durable import write_durably
from layers.network import file_wire_size


@dataclass(frozen=True)
class AssetFile:
    """An asset's file.

    Attributes:
        name: name of the asset, as a hook declares it.
        content: content of the file.
    """

    name: str
    content: bytes

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes."""
        return len(self.content)

    @property
    def announced(self) -> AnnouncedAsset:
        """Name, digest and size, as the server announces them to clients."""
        return AnnouncedAsset(self.name, self.sha256, self.size_bytes)

    def wire_bytes(self, client: int) -> int:
        """Return the bytes that sending it to a client takes on the wire, in both directions."""
        return file_wire_size(self.announced.file_name(client), self.size_bytes)

    def write(self, path: Path) -> None:
        """Write the file, completely or not at all, unless it exists already.

        Raises:
            FedmxError: it cannot be written.
        """
        try:
            if not path.exists() or path.read_bytes() != self.content:
                path.parent.mkdir(exist_ok=True)
                write_durably(path, self._fill)
        except OSError as error:
            raise FedmxError(
                f"{path}: the asset cannot be written ({error.strerror}); make room"
            ) from None

    def _fill(self, path: Path) -> None:
        path.write_bytes(self.content)
