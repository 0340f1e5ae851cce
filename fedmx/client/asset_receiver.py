"""A deployed client's copy of the shared samples: where it is, and whether it is the right one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from pathlib import Path

from fedmx.assembly.asset_file import AssetFile, file_name
from fedmx.protocol.messages import Setup


class AssetReceiver:
    """The file that the server sends to a client that lacks it.

    Args:
        memory: the folder of what survives this process; None: a temporary one.

    Attributes:
        folder: into which the connector has to receive.
    """

    def __init__(self, memory: Path | None) -> None:
        if memory is not None:
            self.folder = memory / "shared"
            return
        self.folder = Path(tempfile.mkdtemp(prefix="fedmx-client-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, setup: Setup) -> Path:
        """Return where a run's file is, once it is there."""
        return self.folder / file_name(setup.shared_sha256, setup.client)

    def load(self, setup: Setup) -> AssetFile | None:
        """Return what the setup announces; None if it is not there, or something else is."""
        try:
            path = self.path(setup)
            if path.stat().st_size != setup.shared_bytes:
                return None
            found = AssetFile(path.read_bytes())
        except OSError:
            return None
        return found if found.sha256 == setup.shared_sha256 else None

    def discard(self, setup: Setup) -> None:
        """Remove the file: the run is over."""
        path = self.path(setup)
        for one in (path, path.with_name(path.name + ".part")):
            with contextlib.suppress(OSError):
                one.unlink()

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if hasattr(self, "_end"):
            self._end()
