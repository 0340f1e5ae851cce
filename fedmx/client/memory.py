"""What a deployed client must not forget when its process dies: its ledger, in one file."""

from __future__ import annotations

from pathlib import Path

from fedmx.run.checkpoint import read_checkpoint, write_checkpoint
from layers.logic import ClientLedger


class ClientMemory:
    """The ledger of one client in one run.

    Args:
        folder: where ledgers are kept, one file a run and client; None keeps them in this process.
    """

    def __init__(self, folder: Path | None, run: str, client: int) -> None:
        self._path = None if folder is None else folder / f"{run}-client-{client}.safetensors"
        self._kept: ClientLedger | None = None

    def load(self) -> ClientLedger:
        """Return what was kept, or an empty ledger.

        Raises:
            CheckpointError: the file is damaged.
        """
        if self._kept is None and self._path is not None and self._path.exists():
            self._kept = ClientLedger.of_tree(read_checkpoint(self._path).state)
        return self._kept or ClientLedger()

    def keep(self, ledger: ClientLedger) -> None:
        """Write the ledger beside the old one, then in its place."""
        self._kept = ledger
        pending = ledger.pending
        if self._path is None or not (ledger.settled.memory or (pending and pending.memory)):
            return  # hooks without memory: the server's word is all that the next task needs
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(self._path, ledger.settled.round, ledger.tree())

    def discard(self) -> None:
        """Forget the ledger: the run is over."""
        self._kept = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
