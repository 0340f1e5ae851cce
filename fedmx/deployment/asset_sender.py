"""Handing the shared samples out: to every client that lacks them, once, from one file."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from fedmx.assembly.asset_file import AssetFile, file_name
from layers.network import Listener, NotConnected


class AssetSender:
    """Knows who is being sent the file: the network takes a broken transfer up again by itself.

    Args:
        shared: what is handed out.
        listener: where clients connect.

    Attributes:
        path: of the file; None: a temporary one, as long as this is open.
    """

    def __init__(self, shared: AssetFile, listener: Listener) -> None:
        self.shared = shared
        self.path: Path | None = None
        self._listener = listener
        self._temporary: Path | None = None
        self._written: Path | None = None
        self._under_way: set[str] = set()
        self._have: set[str] = set()

    def give(self, peer: str, client: int) -> bool:
        """Send a client the file, unless it is on its way; return whether it had it once before.

        Raises:
            FedmxError: the file cannot be written.
            TransferError: it cannot be read.
        """
        if peer in self._under_way:
            return False
        path = self._file()
        with contextlib.suppress(NotConnected):  # it will ask when it is back
            self._listener.send_file(peer, path, file_name(self.shared.sha256, client))
            self._under_way.add(peer)
        return peer in self._have

    def arrived(self, peer: str) -> None:
        """Take note that a client has the file."""
        self._under_way.discard(peer)
        self._have.add(peer)

    def failed(self, peer: str) -> bool:
        """Take note that a client does not get the file; return whether it was on its way."""
        under_way = peer in self._under_way
        self._under_way.discard(peer)
        return under_way

    def close(self) -> None:
        """Remove the file if it is a temporary one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _file(self) -> Path:
        path = self.path
        if path is None:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="fedmx-server-"))
            path = self._temporary / "shared-samples.safetensors"
        if self._written != path or not path.exists():
            self.shared.write(path)
            self._written = path
        return path
