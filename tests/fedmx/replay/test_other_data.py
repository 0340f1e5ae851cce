"""Data that changed since a run are noticed: when it goes on, is replayed or compared."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedmx import RunFolder
from fedmx.history import diff, fork, pack, replay
from fedmx.run import RunError
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import TREE, run_of


def write_data(file: Path, first: float) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32), np.arange(60) % 3
    x[0, 0] = first
    np.savez(file, x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])


def recorded(folder: Path, file: Path) -> RunFolder:
    data = {"name": "arrays", "path": str(file)}
    compute = {**TREE["compute"], "data": data, "normalise": None, "partition": "iid"}
    return run_of(folder, rounds=2, clients=2, compute=compute)


@pytest.fixture
def changed(tmp_path: Path) -> RunFolder:
    """A run one of whose samples is another one now."""
    write_data(tmp_path / "mine.npz", 0.5)
    run = recorded(tmp_path / "runs", tmp_path / "mine.npz")
    write_data(tmp_path / "mine.npz", 0.75)
    return run


def test_a_run_does_not_go_on_with_other_data(changed: RunFolder, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("run.json", "experiment.yaml"):
        shutil.copy(changed.path / name, begun)
    error = fedmx("resume", begun, cwd=tmp_path).error_text
    assert "has other samples than when the run began" in error
    assert {path.name for path in begun.iterdir()} <= {"run.json", "experiment.yaml", "lock"}


def test_no_run_is_forked_or_packed_with_other_data(changed: RunFolder, tmp_path: Path) -> None:
    said = "has other samples than when the run began"
    with pytest.raises(RunError, match=said):
        fork(changed, 1, ["rounds=3"])
    with pytest.raises(RunError, match=said):
        pack(changed, tmp_path / "x.fedmx")
    assert not (tmp_path / "x.fedmx").exists()
    assert list(changed.path.parent.iterdir()) == [changed.path]


def test_a_replay_on_other_data_says_so(
    changed: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert replay(changed).same is False
    (line,) = caplog.messages
    assert line.startswith(f"{changed.path}: ")
    assert line.endswith("has other samples here than in the run")


def test_a_diff_of_runs_on_other_data_says_so(changed: RunFolder, tmp_path: Path) -> None:
    report = diff(changed, recorded(tmp_path / "runs", tmp_path / "mine.npz"))
    (difference,) = report.data
    assert difference.startswith("SHA-256 ")
    assert report.sentence.startswith("the data differ (SHA-256 ")
