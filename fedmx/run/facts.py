"""The facts that are needed to run an experiment again: versions, platform, seed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any, Literal

from fedmx.version import __version__
from layers.compute.bits import instructions

PACKAGES = ("mxnet", "numpy")

DECIDING = ("fedmx", *PACKAGES, "builds", "python", "instructions", "threads", "code")
"""The facts that decide the bits of a run, besides the experiment."""


def gather_facts(
    *, seed: int, mode: Literal["simulation", "server"], digest: str, **more: Any
) -> dict[str, Any]:
    """Return the facts of a run that starts now.

    Versions come from the metadata of the installed packages, so that nothing is imported. A
    package that is not installed has the version None.

    Args:
        seed: the experiment's seed.
        mode: simulation or server.
        digest: the experiment's digest.
        **more: other facts, added as they are.
    """
    return {
        "fedmx": __version__,
        **{package: _version(package) for package in PACKAGES},
        "builds": {package: _build(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "instructions": instructions(),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))),
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
    """Return which build of a package is installed: a hash of the hashes of its libraries."""
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    hashes = sorted(one.hash.value for one in files if one.suffix == ".so" and one.hash)
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16] if hashes else None


def _cpu() -> str | None:
    """Return the name of the processor's model, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)
