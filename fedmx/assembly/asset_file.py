"""An asset as the file in which it travels to clients, whatever is in it."""

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
    """A named file.

    Attributes:
        name: of the asset, as a hook declares it.
        content: of the file.
    """

    name: str
    content: bytes

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.content)

    @property
    def announced(self) -> AnnouncedAsset:
        """What the server says of it to a client."""
        return AnnouncedAsset(self.name, self.sha256, self.size_bytes)

    def wire_bytes(self, client: int) -> int:
        """Return the bytes that sending it to a client takes on the wire, in both directions."""
        return file_wire_size(self.announced.file_name(client), self.size_bytes)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all, unless it is there already.

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
