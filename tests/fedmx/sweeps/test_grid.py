"""Two axes of a sweep: the best cell, and the heat map of all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.report.grid import grid_section
from fedmx.sweeps.cells import axis_of
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.result import SweepResult

TREE = {
    "name": "small",
    "rounds": 1,
    "clients": 4,
    "compute": {"model": "2nn", "data": "digits", "normalise": {"scale": 16}},
}
PRESETS, CLIENTS = ["fedavg", {"name": "fedprox", "mu": 0.1}], [4, 5, 6]
VALUES = ((0.5, 0.9, 0.6), (0.7, 0.4, None))  # of each cell; None: not done


def swept(parent: Path, metric: str = "accuracy") -> SweepResult:
    axes = [axis_of("logic.preset", PRESETS), axis_of("clients", CLIENTS)]
    text = json.dumps(TREE)
    settings = {"seeds": [1, 2], "overrides": [], "modules": parent, "target": None}
    sweep = SweepFolder.create(parent, "small", text, axes=axes, **settings)
    facts = {} if metric == "accuracy" else {"metrics": [{"key": metric, "better": "lower"}]}
    for run in sweep.runs:
        down, across = divmod(run.cell.number - 1, len(CLIENTS))
        value = VALUES[down][across]
        if value is None or (run.cell.number, run.seed) == (1, 2):
            continue
        given = Experiment.parse(text, "small", run.overrides).to_yaml()
        made = RunFolder.create(sweep.path, run.name, given, facts)
        made.append_round({"round": 1, metric: value, "loss": 1.0})
        made.finish("done")
    return SweepResult.of(sweep)


@pytest.mark.parametrize(
    ("metric", "words", "bold"),
    [
        ("accuracy", ("fedavg", "clients 5", "best accuracy 90.00 %", "2 seeds"), "90.00"),
        ("rmse", ("fedprox mu=0.1", "clients 5", "best rmse 0.4", "2 seeds"), "0.4"),
    ],
)
def test_the_best_cell_is_named_and_bold(
    metric: str, words: tuple[str, ...], bold: str, tmp_path: Path
) -> None:
    result = swept(tmp_path, metric)
    assert result.best_cell is not None
    assert all(word in result.best_cell for word in words)
    compared = result.comparison()
    assert result.best_cell in compared.notes
    section = str(grid_section(compared.grid))
    assert re.findall(r"<strong[^>]*>([^<]*)</strong>", section) == [bold]
    shares = [int(share) for share in re.findall(r"(\d+)%, var", section)]
    assert len(shares) == 5, "a cell without a finished run has no colour"
    assert (min(shares), shares.count(max(shares))) == (0, 1)
    assert "1 of 2 seeds" in section


def test_one_axis_has_no_best_cell(tmp_path: Path) -> None:
    axes = [axis_of("clients", CLIENTS)]
    settings = {"seeds": [1], "overrides": [], "modules": tmp_path, "target": None}
    sweep = SweepFolder.create(tmp_path, "small", json.dumps(TREE), axes=axes, **settings)
    assert SweepResult.of(sweep).best_cell is None
