"""What a run needs to say about itself to be run again: versions, platform, seed."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any, Literal

from fedmx.version import __version__

PACKAGES = ("mxnet", "numpy")


def gather_facts(
    *, seed: int, mode: Literal["simulation", "server"], digest: str, **more: Any
) -> dict[str, Any]:
    """Return the facts of a run that starts now; ``more`` is added as it is.

    Versions come from the installed packages' metadata, so that nothing is imported; a package that
    is not installed has the version None.
    """
    return {
        "fedmx": __version__,
        **{package: _version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
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
