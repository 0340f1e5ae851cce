"""What a run folder is known by: its name, and run.json with the files that the run began with."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.run.checksum import read_document, sha256_of, write_document
from fedmx.run.errors import DamagedError, RunError
from fedmx.shell_line import shell_line

FORMAT = 2
FIRST_WITH_CHECKSUMS = 2
FILE = "run.json"


@dataclass(frozen=True)
class Identity:
    """The content of run.json.

    Attributes:
        facts: versions, seed, mode and more.
        files: the SHA-256 (hex) of the files that the run began with, by name.
        format: of the run folder.
    """

    facts: dict[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def checked(self) -> bool:
        """Whether all records and documents of the folder must have a checksum."""
        return self.format >= FIRST_WITH_CHECKSUMS

    @classmethod
    def read(cls, folder: Path) -> Identity:
        """Read run.json.

        Raises:
            DamagedError: it is damaged.
            RunError: there is none, or a newer fedmx wrote it.
        """
        path = folder / FILE
        if not path.exists():
            raise RunError(f"{folder}: {_not_a_run_reason(folder)}")
        document, checked = read_document(path)
        form, facts, files = (
            document.get("format"),
            document.get("facts"),
            document.get("files", {}),
        )
        if isinstance(form, int) and form > FORMAT:
            raise RunError(
                f"{folder}: the run folder has format {form}, this fedmx reads up to {FORMAT}; "
                "use the version that wrote it, or a newer one"
            )
        if not isinstance(form, int) or not isinstance(facts, dict) or not isinstance(files, dict):
            raise DamagedError(f"{path}: not written by fedmx")
        found = cls(facts, files, form)
        if found.checked and not checked:
            raise DamagedError(f"{path}: damaged (its checksum is missing)")
        return found

    def has(self, file: Path) -> bool:
        """Return whether a file has the content that the run began with, as far as it is recorded.

        Raises:
            OSError: it cannot be read.
        """
        recorded = self.files.get(file.name)
        return recorded is None or sha256_of(file) == recorded

    def write(self, folder: Path) -> None:
        """Write run.json, whole or not at all.

        Raises:
            OSError: the disk refuses.
        """
        document = {"format": self.format, "facts": self.facts, "files": dict(self.files)}
        write_document(folder / FILE, document)


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 (hex) of files in a folder, by name.

    Raises:
        OSError: one cannot be read.
    """
    return {name: sha256_of(folder / name) for name in names}


def new_folder(parent: Path, name: str, time: str) -> Path:
    """Make and return a folder that did not exist, for a run of the experiment `name`.

    The name keeps only letters, digits and . _ -; if it is taken, it gets ``-2``, ``-3`` and so on.

    Raises:
        OSError: it cannot be made.
    """
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:100].strip(".-") or "run"
    stem, number = f"{plain_name}-{time}", 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def _not_a_run_reason(path: Path) -> str:
    """Return why a folder without run.json cannot be opened, and what to do."""
    if _has_begun(path):
        return f"{FILE} is missing; restore it from a copy"
    if (path / "experiment.yaml").exists() and (path / "checkpoints").is_dir():
        return "the run is incomplete, it ended before round 1; run the experiment again"
    if (path / "sweep.json").exists():
        return (
            f"a sweep, not a run; {shell_line('fedmx', 'sweep', path)} shows its result or goes on "
            f"with it; its runs are {path}/*-s*"
        )
    runs = sorted(inner.parent.name for inner in path.glob(f"*/{FILE}"))
    if runs:
        return f"not a run folder, but {len(runs)} are in it, such as {runs[-1]}; give one of them"
    return "not a run folder (it has no run.json); give one, as in runs/NAME-DATE-TIME"


def _has_begun(path: Path) -> bool:
    """Return whether a run has recorded something; a fork has records before it is a run."""
    if not any((path / name).exists() for name in ("lock", "status.json")):
        return False
    rounds = path / "rounds.jsonl"
    recorded = rounds.is_file() and rounds.stat().st_size > 0
    return recorded or any((path / "checkpoints").glob("round-*"))
