"""The versions and the facts of a machine that decide the bits of a run, compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmx.run.identity import DECIDING

BUILD = " build"


def other_versions(facts: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Return what decides bits and differs, each as ``numpy 2.5.5 against 1.23.5``.

    A fact that one of the two does not have is left out, and the build of a package whose version
    differs.
    """
    mine, theirs = _flat(facts), _flat(others)
    differing = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return [
        f"{name} {mine[name]} against {theirs[name]}"
        for name in differing
        if name.removesuffix(BUILD) == name or name.removesuffix(BUILD) not in differing
    ]


def _flat(facts: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in DECIDING:
        if name == "builds":
            builds = facts.get(name) or {}
            found |= {f"{package}{BUILD}": str(value) for package, value in builds.items()}
        elif name == "code":
            code = facts.get(name) or {}
            found |= {file: str(sha256)[:16] for file, sha256 in code.items()}
        elif name in facts:
            found[name] = str(facts[name])
    return found
