"""The run that forks begin with, and what is compared of runs."""

from __future__ import annotations

import hashlib
from typing import Any

from fedmx import RunFolder
from fedmx.history import Fork
from tests.fedmx import kinds

TREE: dict[str, Any] = {
    "name": "parent",
    "rounds": 6,
    "clients": 6,
    "compute": {**kinds.TREE["compute"], "evaluate": {"batch_size": 500}},
    "logic": {"selector": {"name": "uniform", "count": 2}},
    "run": {"checkpoint": {"keep": 20}},
}


def ended(fork: Fork) -> RunFolder:
    """Run a fork to its end."""
    list(fork.rounds())
    return fork.folder


def chain(folder: RunFolder) -> list[str]:
    """The chain of a run: it binds all records, counted updates and models."""
    return [record["chain"] for record in folder.rounds()]


def models(folder: RunFolder) -> list[str]:
    return [record["model_sha256"] for record in folder.rounds()]


def cohorts(folder: RunFolder) -> list[list[int]]:
    """The clients that were selected, by round."""
    found: dict[int, list[int]] = {record["round"]: [] for record in folder.rounds()}
    for record in folder.clients():
        found[record["round"]].append(record["client"])
    return list(found.values())


def contents(folder: RunFolder) -> dict[str, tuple[str, int]]:
    """The SHA-256 and the time of the last change of each file of a folder."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.path.rglob("*"))
        if path.is_file()
    }
