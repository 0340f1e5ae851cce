"""Folders that cannot be written for a time: no permission, or no room."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fedmx.processes import Process

CAPABILITIES = 0x20080522  # the version of the structure that capset takes
DISK_BYTES = 40_000_000


class Unprivileged(Process):
    """A `fedmx` command whose user obeys the modes of files, also if it is root."""

    main = "tests.fedmx.unwritable:main_of_unprivileged"


def main_of_unprivileged() -> None:
    """Run `fedmx` without root's capabilities."""
    from fedmx.cli.start import main

    header, none = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")
    main()


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take the permission to write a folder, and all that is in it, inside a with statement."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path, mode in modes.items():
        path.chmod(mode & 0o555)
    yield
    for path, mode in modes.items():
        path.chmod(mode)


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Put a small disk of its own at a folder."""
    folder.mkdir()
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    options = f"size={DISK_BYTES},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the disk of a folder to the last byte inside a with statement."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    yield
    ballast.unlink()
