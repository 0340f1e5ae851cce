"""The experiment with attacks and rules: every run of it is one that fedmx accepts."""

from __future__ import annotations

import json
from importlib import import_module
from types import ModuleType

import pytest

from layers.logic import ATTACKS


@pytest.fixture
def byzantine() -> ModuleType:
    return import_module("byzantine")


def test_every_attack_of_fedmx_meets_every_rule_and_liars_of_three_shares_meet_four(
    byzantine,
) -> None:
    planned = list(byzantine.cells(["iid"], 1, 2))
    assert set(byzantine.ATTACKS) == {"none", *ATTACKS}
    assert len(planned) == len(set(planned)) == 14 * 11 + 2 * 13 * 4
    assert set(byzantine.FOUR) <= set(byzantine.rules(10))


def test_every_run_is_accepted(byzantine) -> None:
    for cell in byzantine.cells(list(byzantine.PARTITIONS), 1, 2):
        assert cell.experiment().logic.aggregator is not None


def test_finished_runs_are_in_the_table_and_in_the_map(byzantine, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(byzantine, "RESULTS", tmp_path / "results.jsonl")
    cell = byzantine.Cell("iid", "alie", 0.2, "krum", rounds=2)
    lines = [{**vars(cell), "seed": seed, "accuracy": 0.5 + seed / 10} for seed in (1, 2)]
    byzantine.RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = byzantine.accuracies("iid", 0.2, 2)
    assert found == {("alie", "krum"): pytest.approx(65.0)}
    assert list(byzantine.table(found))[-1] == "| alie | 65.0 |"
    byzantine.draw(found, tmp_path / "iid.svg")
    assert "65.0" in (tmp_path / "iid.svg").read_text()
