"""The server's sending of assets: each goes once to every client that lacks it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedmx.assembly.asset_file import AssetFile
from fedmx.protocol.messages import AnnouncedAsset
from layers.network import Listener, NotConnected


class AssetSender:
    """Knows which file is on its way to whom; the network resumes a broken transfer by itself.

    Args:
        assets: what is sent.
        listener: where clients connect.

    Attributes:
        announced: what every client is told of the assets.
        folder: of the files; None: a temporary one, as long as this is open.
    """

    def __init__(self, assets: Sequence[AssetFile], listener: Listener) -> None:
        self.announced: tuple[AnnouncedAsset, ...] = tuple(asset.announced for asset in assets)
        self.folder: Path | None = None
        self._assets = {asset.name: asset for asset in assets}
        self._listener = listener
        self._temporary: Path | None = None
        self._written: set[Path] = set()
        self._under_way: set[tuple[str, str]] = set()  # peer and file name
        self._have: set[tuple[str, str]] = set()  # likewise

    def send(self, peer: str, client: int, names: Iterable[str]) -> list[str]:
        """Send a client assets, unless they are on their way to it.

        Returns:
            The names of those that it had once before.

        Raises:
            FedmxError: a file cannot be written.
            TransferError: a file cannot be read.
        """
        again = []
        for name in dict.fromkeys(names):
            asset = self._assets[name]
            transfer = peer, asset.announced.file_name(client)
            if transfer in self._under_way:
                continue
            path = self._file(asset)
            with contextlib.suppress(NotConnected):  # it will ask when it is back
                self._listener.send_file(peer, path, transfer[1])
                self._under_way.add(transfer)
            if transfer in self._have:
                again.append(name)
        return again

    def arrived(self, peer: str, file_name: str) -> None:
        """Take note that a client has a file."""
        self._under_way.discard((peer, file_name))
        self._have.add((peer, file_name))

    def failed(self, peer: str, file_name: str) -> bool:
        """Take note that a client does not get a file; return whether it was on its way."""
        under_way = (peer, file_name) in self._under_way
        self._under_way.discard((peer, file_name))
        return under_way

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _file(self, asset: AssetFile) -> Path:
        """Return where an asset's file is, after it was written if that was necessary."""
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
