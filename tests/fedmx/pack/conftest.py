"""A pack that several files of tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx.history import pack
from tests.fedmx.recorded_runs import TREE, run_of


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of fedmx's own code alone, of a run that a condition ended."""
    folder = tmp_path_factory.mktemp("plain")
    compute = {**TREE["compute"], "train": {"batch_size": 20, "learning_rate": 0.01}}
    pack(run_of(folder, rounds=9, compute=compute, stop={"accuracy": 0.5}), folder / "plain.fedmx")
    return folder / "plain.fedmx"
