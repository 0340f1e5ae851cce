"""The experiment with budgets: every run of it is one that fedmx accepts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest


def test_each_model_and_partition_meets_each_budget_and_names_choose_among_them() -> None:
    private = import_module("private")
    planned = list(private.cells(200, 3))
    assert len(planned) == len(set(planned)) == 3 * 4 * 2 * 2
    chosen = list(private.cells(200, 1, ["2nn", "IID", "none", "8"]))
    assert [(one.model, one.partition, one.epsilon) for one in chosen] == [
        ("2nn", "IID", "none"),
        ("2nn", "IID", "8"),
    ]
    for cell in private.cells(200, 1):
        privacy = cell.experiment().privacy
        assert (privacy is None) == (cell.epsilon == "none")
        assert privacy is None or privacy.settings["epsilon"] == float(cell.epsilon)


def test_the_table_has_the_median_and_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = import_module("private")
    lines = [
        f'{{"model": "2nn", "partition": "IID", "seed": {seed}, "rounds": 2, "epsilon": "8", '
        f'"accuracy": {accuracy}}}\n'
        for seed, accuracy in enumerate((0.93, 0.95, 0.94), start=1)
    ]
    (tmp_path / "results.jsonl").write_text("".join(lines))
    monkeypatch.setattr(private, "RESULTS", tmp_path / "results.jsonl")
    assert "94.00 (93.00 to 95.00)" in "\n".join(private.table(2))
