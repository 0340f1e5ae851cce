"""The packages of fedmx's extras, which some parts need."""

from __future__ import annotations

import re


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra, from a checkout or a wheel.

    It names these packages, and so leaves everything else in the environment as it is.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("fedmx") or []
    except PackageNotFoundError:
        lines = []
    form = re.compile(rf"""(.+); extra == ['"]{re.escape(extra)}['"]""")
    packages = [f'"{found[1]}"' for line in lines if (found := form.fullmatch(line))]
    if not packages:
        return f"install the packages of the extra {extra!r} in setup.py"
    return " ".join(["pip install", *packages])
