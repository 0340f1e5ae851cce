"""Sending assets to deployed clients: each client that lacks an asset gets it once."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmx.assembly.assets import AssetFile
from fedmx.protocol.messages import AnnouncedAsset
from layers.network import Listener, NotConnected


class AssetSender:
    """Sends asset files and tracks the transfers; the network resumes a broken one by itself.

    Args:
        assets: the files to send.
        listener: the listener that clients connect to.

    Attributes:
        announced: name, digest and size of each asset, as they are announced to clients.
        folder: the folder of the files; None: a temporary one, removed by `close`.
    """

    def __init__(self, assets: Sequence[AssetFile], listener: Listener) -> None:
        self.announced: tuple[AnnouncedAsset, ...] = tuple(asset.announced for asset in assets)
        self.folder: Path | None = None
        self._assets = {asset.name: asset for asset in assets}
        self._listener = listener
        self._temporary: Path | None = None
        self._written: set[Path] = set()
        self._under_way: set[tuple[str, str]] = set()  # peer and file name
        self._sent: set[tuple[str, str]] = set()  # peer and file name

    def send(self, peer: str, client: int, names: Iterable[str]) -> list[str]:
        """Send assets to a client, except those that are on their way to it.

        Returns:
            The names of the assets that the client had received once before.

        Raises:
            FedmxError: a file cannot be written.
            TransferError: a file cannot be read.
        """
        repeated = []
        for name in dict.fromkeys(names):
            asset = self._assets[name]
            transfer = peer, asset.announced.file_name(client)
            if transfer in self._under_way:
                continue
            path = self._file(asset)
            with contextlib.suppress(NotConnected):  # the client asks again when it is back
                self._listener.send_file(peer, path, transfer[1])
                self._under_way.add(transfer)
            if transfer in self._sent:
                repeated.append(name)
        return repeated

    def sent(self, peer: str, file_name: str) -> None:
        """Record that a client has received a file."""
        self._under_way.discard((peer, file_name))
        self._sent.add((peer, file_name))

    def failed(self, peer: str, file_name: str) -> bool:
        """Record that a transfer to a client failed; return whether it was under way."""
        under_way = (peer, file_name) in self._under_way
        self._under_way.discard((peer, file_name))
        return under_way

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _file(self, asset: AssetFile) -> Path:
        """Return the path of an asset's file; write the file first if it does not exist."""
        folder = self.folder
        if folder is None:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="fedmx-server-"))
            folder = self._temporary
        path = folder / f"{asset.name}.safetensors"
        if path not in self._written or not path.exists():
            asset.write(path)
            self._written.add(path)
        return path
