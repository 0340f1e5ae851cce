"""The experiment with attacks and rules: every run of it is one that fedmx accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import byzantine
from experiments.byzantine import ATTACKS, FOUR, Cell, accuracies, cells, draw, rules, table
from layers.logic import ATTACKS as KNOWN


def test_every_attack_of_fedmx_meets_every_rule_and_liars_of_three_shares_meet_four() -> None:
    planned = list(cells(["iid"], 1, 2))
    assert set(ATTACKS) == {"none", *KNOWN}
    assert len(planned) == len(set(planned)) == 13 * 11 + 2 * 12 * 4
    assert set(FOUR) <= set(rules(10))


@pytest.mark.parametrize("rule", rules(10))
def test_every_run_is_accepted(rule: str) -> None:
    shares = (0.1, 0.2, 0.4) if rule in FOUR else (0.2,)
    for share in shares:
        experiment = Cell("dirichlet", "min-max", share, rule).experiment()
        assert experiment.logic.aggregator is not None
    for attack in ATTACKS:
        Cell("iid", attack, 0.2, rule).experiment()


def test_finished_runs_are_in_the_table_and_in_the_map(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(byzantine, "RESULTS", tmp_path / "results.jsonl")
    cell = Cell("iid", "alie", 0.2, "krum", rounds=2)
    lines = [{**vars(cell), "seed": seed, "accuracy": 0.5 + seed / 10} for seed in (1, 2)]
    byzantine.RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = accuracies("iid", 0.2, 2)
    assert found == {("alie", "krum"): pytest.approx(65.0)}
    assert list(table(found))[-1] == "| alie | 65.0 |"
    draw(found, tmp_path / "iid.svg")
    assert "65.0" in (tmp_path / "iid.svg").read_text()
