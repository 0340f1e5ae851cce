"""A deployed client's received assets: their files, and the checks of their content."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Collection
from pathlib import Path

from fedmx.assembly.assets import AssetFile, samples_in
from fedmx.client.participant import Participant
from fedmx.components.text import shown
from fedmx.errors import FedmxError
from fedmx.protocol.messages import AnnouncedAsset, Setup
from layers.logic.core.asset import NAME
from layers.network import ExpectedFile
from layers.network.files import PART, remove_unfinished

SHA256 = re.compile(r"[0-9a-f]{64}")


class AssetReceiver:
    """The folder of the asset files that a client has received.

    It accepts only announced files, and removes unfinished ones when the client ends. After a kill,
    the next start removes files that are not announced, and resumes the others.

    Args:
        memory: the folder that survives this process; None: a temporary one.

    Attributes:
        folder: the folder into which the connector must receive files.
    """

    def __init__(self, memory: Path | None) -> None:
        self._client: int | None = None
        if memory is not None:
            self.folder = memory / "assets"
            return
        self.folder = Path(tempfile.mkdtemp(prefix="fedmx-client-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def expect(self, setup: Setup) -> tuple[ExpectedFile, ...]:
        """Return the announced files; remove unfinished other files of an earlier process."""
        self._client = setup.client
        files = tuple(
            ExpectedFile(
                asset.file_name(setup.client), asset.size_bytes, bytes.fromhex(asset.sha256)
            )
            for asset in setup.assets
        )
        self._remove_unfinished({file.name for file in files})
        return files

    def path(self, asset: AnnouncedAsset, client: int) -> Path:
        """Return the path of an asset's file, received or not."""
        return self.folder / asset.file_name(client)

    def load(self, asset: AnnouncedAsset, participant: Participant) -> bool:
        """Load an asset into a participant; return whether its file was received and is intact.

        Raises:
            FedmxError: the file holds no samples, or samples of another shape than the model takes.
        """
        found = self.find(asset, participant.client)
        if found is None:
            return False
        samples, shape = samples_in(found), participant.compute.engine.example_shape
        if samples.x.shape[1:] != shape:
            raise FedmxError(
                f"the samples of the asset {asset.name!r} have shape {samples.x.shape[1:]}, and "
                f"the model takes {shape}"
            )
        participant.assets = {**participant.assets, asset.name: samples}
        return True

    def find(self, asset: AnnouncedAsset, client: int) -> AssetFile | None:
        """Return the announced asset; None if its file was not received or has other content."""
        try:
            path = self.path(asset, client)
            if path.stat().st_size != asset.size_bytes:
                return None
            found = AssetFile(asset.name, path.read_bytes())
        except OSError:
            return None
        return found if found.sha256 == asset.sha256 else None

    def discard(self, setup: Setup) -> None:
        """Remove the files of a run that has ended."""
        for asset in setup.assets:
            with contextlib.suppress(OSError):
                self.path(asset, setup.client).unlink()

    def close(self) -> None:
        """Remove this client's unfinished files, and the temporary folder, if there is one."""
        self._remove_unfinished()
        if hasattr(self, "_end"):
            self._end()

    def _remove_unfinished(self, announced: Collection[str] = ()) -> None:
        """Remove this client's unfinished files, except announced ones."""
        if self._client is None:
            return
        for part in self.folder.glob(f"*-client-{self._client}.safetensors{PART}"):
            path = part.with_name(part.name.removesuffix(PART))
            if path.name not in announced:
                remove_unfinished(path)


def check_announced(setup: Setup) -> None:
    """Check the names and digests that a server announces, since they become names of files.

    Raises:
        FedmxError: a name or a digest is invalid, or a name occurs twice.
    """
    if len({asset.name for asset in setup.assets}) < len(setup.assets):
        raise FedmxError("the server announces two assets of the same name")
    for asset in setup.assets:
        if NAME.fullmatch(asset.name) is None:
            raise FedmxError(
                f"the server calls an asset {shown(asset.name)}, which is not a valid name"
            )
        if SHA256.fullmatch(asset.sha256) is None:
            raise FedmxError(f"the server says {shown(asset.sha256)} in place of a SHA-256")
