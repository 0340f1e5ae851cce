"""The documents of a run folder: run.json with the facts of the run, status.json with its end."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fedmx.components.engines import PACKAGES
from fedmx.components.text import unknown
from fedmx.run.durable import (
    PRIVATE_FOLDER,
    DamagedError,
    RunError,
    cannot_write,
    read_document,
    sha256_of,
    sync_folder,
    write_document,
)
from fedmx.shell_line import shell_line
from fedmx.version import __version__
from layers.compute.bits import cores, instructions, variables

FORMAT = 4
FILE = "run.json"
UNFINISHED_PREFIX = ".unfinished-"


@dataclass(frozen=True)
class Identity:
    """The content of run.json.

    Attributes:
        facts: versions, seed, mode and more.
        files: the SHA-256 (hex) of the run's initial files, by name.
    """

    facts: dict[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Identity:
        """Read run.json.

        Raises:
            DamagedError: it is damaged.
            RunError: there is none, or a version of fedmx with another format wrote it.
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
        if isinstance(form, int) and form != FORMAT:
            version = facts.get("fedmx", "") if isinstance(facts, dict) else ""
            raise RunError(
                f"{folder}: the run folder has format {form}, this fedmx reads format {FORMAT}; "
                f"read it with the version that wrote it{f', fedmx {version}' if version else ''}"
            )
        if not isinstance(form, int) or not isinstance(facts, dict) or not isinstance(files, dict):
            raise DamagedError(f"{path}: not written by fedmx")
        if not checked:
            raise DamagedError(f"{path}: damaged (its checksum is missing)")
        return cls(facts, files)

    def has(self, file: Path) -> bool:
        """Return whether a file has its initial content, or none is recorded.

        Raises:
            OSError: it cannot be read.
        """
        recorded = self.files.get(file.name)
        return recorded is None or sha256_of(file) == recorded

    def write(self, folder: Path) -> None:
        """Write run.json atomically.

        Raises:
            OSError: the file cannot be written.
        """
        document = {"format": FORMAT, "facts": self.facts, "files": dict(self.files)}
        write_document(folder / FILE, document)


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 (hex) of files in a folder, by name.

    Raises:
        OSError: one cannot be read.
    """
    return {name: sha256_of(folder / name) for name in names}


def new_folder(parent: Path, name: str, time: str, fill: Callable[[Path], None]) -> Path:
    """Make a folder for a run of the experiment `name`, fill it, and return its path.

    The folder has a hidden name until it is complete. If `fill` fails, nothing is left of it; a
    killed process leaves at most a folder whose name starts with `UNFINISHED_PREFIX`. The final
    name keeps only letters, digits and . _ -; if it is taken, it gets ``-2``, ``-3`` and so on.

    Args:
        parent: the folder to make it in.
        name: the experiment's name.
        time: the time in the folder's name.
        fill: writes the content of the folder at the path that it is given.

    Raises:
        OSError: it cannot be made, or ``fill`` raised it.
    """
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:100].strip(".-") or "run"
    stem = f"{plain_name}-{time}"
    unfinished = parent / f"{UNFINISHED_PREFIX}{secrets.token_hex(8)}-{stem}"
    try:
        unfinished.mkdir(PRIVATE_FOLDER)
        fill(unfinished)
        path = _renamed(unfinished, parent / stem)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_folder(parent)
    return path


def _renamed(folder: Path, wanted: Path) -> Path:
    """Give a folder the wanted name, or the first free one after it; return its new path."""
    path, number = wanted, 1
    while True:
        try:
            if not os.path.lexists(path):  # a rename replaces an empty folder
                return folder.rename(path)
        except OSError:
            if not os.path.lexists(path):
                raise
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")


def _not_a_run_reason(path: Path) -> str:
    """Return why a folder without run.json is not a run folder, and what to do."""
    if (path / "experiment.yaml").exists() and (path / "checkpoints").is_dir():
        return f"{FILE} is missing; restore it from a copy, or start a new run"
    if (path / "sweep.json").exists():
        return (
            f"a sweep, not a run; {shell_line('fedmx', 'sweep', path)} shows its result or goes on "
            f"with it; its runs are {path}/*-s*"
        )
    runs = sorted(inner.parent.name for inner in path.glob(f"*/{FILE}"))
    if runs:
        return f"not a run folder, but {len(runs)} are in it, such as {runs[-1]}; give one of them"
    return "not a run folder (it has no run.json); give one, as in runs/NAME-DATE-TIME"


_MACHINE = ("builds", "python", "instructions", "variables", "threads", "code")
_PACKAGES = dict.fromkeys(one for packages in PACKAGES.values() for one in packages)
DECIDING = ("engine", "fedmx", *_PACKAGES, *_MACHINE)
"""The facts that, with the experiment, determine the bits of a run."""


def gather_facts(
    *,
    seed: int,
    mode: Literal["simulation", "server"],
    digest: str,
    engine: str,
    **more: Any,
) -> dict[str, Any]:
    """Return the facts of a run that starts now.

    Versions come from the metadata of the installed packages; nothing is imported. The version of a
    missing package is None.

    Args:
        seed: the experiment's seed.
        mode: simulation or server.
        digest: the experiment's digest.
        engine: the engine, whose packages are recorded.
        **more: other facts, added as they are.
    """
    return {
        "fedmx": __version__,
        "engine": engine,
        **{package: _version(package) for package in PACKAGES[engine]},
        "builds": {package: _build(package) for package in PACKAGES[engine]},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "instructions": instructions(),
        "variables": variables(),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or cores()),
        "seed": seed,
        "mode": mode,
        "digest": digest,
        **more,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _build(package: str) -> str | None:
    """Return the installed build of a package: a hash over the hashes of its libraries."""
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    hashes = sorted(one.hash.value for one in files if one.suffix == ".so" and one.hash)
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16] if hashes else None


def _cpu() -> str | None:
    """Return the name of the processor's model, if the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


Ending = Literal["done", "stopped", "interrupted", "failed"]
Status = Literal["running", "done", "stopped", "interrupted", "failed"]


def write_ending(path: Path, status: Ending, reason: str, files: Mapping[str, str]) -> None:
    """Write the ending of a run.

    Args:
        path: the file.
        status: the kind of ending.
        reason: the reason, in any number of lines.
        files: the SHA-256 of the final files, by name.

    Raises:
        RunError: there is no such ending, or it cannot be written.
    """
    if status not in get_args(Ending):
        raise RunError(unknown("ending", status, get_args(Ending)))
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    ending = {"status": status, "reason": " ".join(reason.split()), "ended": now}
    try:
        write_document(path, {**ending, "files": dict(files)})
    except OSError as error:
        raise RunError(cannot_write(path.parent, error)) from None


def read_ending(path: Path) -> dict[str, Any]:
    """Return the ending of a run; its status is empty if the run has not ended.

    Args:
        path: the file.

    Raises:
        DamagedError: the file is damaged.
    """
    if not path.exists():
        return {"status": ""}
    ending = read_document(path)
    if ending.values.get("status") not in get_args(Ending) or not ending.checked:
        raise DamagedError(f"{path}: damaged (it does not say how the run ended)")
    return ending.values
