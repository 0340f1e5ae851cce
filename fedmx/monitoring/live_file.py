"""The status of a server as a file in its run folder, renewed every second."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger("fedmx.run")
EVERY_S = 1.0


class LiveFile:
    """Renews the file inside a with statement; it stays there with the last status.

    A file that cannot be written is said once and does not end the run.

    Args:
        path: the file.
        status: returns the status; called by a thread of its own.
    """

    def __init__(self, path: Path, status: Callable[[], Mapping[str, Any]]) -> None:
        self._path = path
        self._status = status
        self._over = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="fedmx-status", daemon=True)

    def __enter__(self) -> LiveFile:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while True:
            self._write()
            if self._over.wait(EVERY_S):
                return

    def _write(self) -> None:
        # Not synced: after a power cut nobody asks what the server was doing just then. The name is
        # none of those that the run folder clears away.
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            temporary.write_text(json.dumps(self._status()) + "\n", encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if not self._warned:
                self._warned = True
                log.warning("%s: cannot write the status (%s)", self._path, error.strerror)
