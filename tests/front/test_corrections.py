"""Corrections and aggregators by name: they learn, resume in the same bits, and have their page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmx import Experiment, ExperimentError, simulate
from layers.logic import AGGREGATORS, HOOKS, PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"
ALGORITHMS: dict[str, dict[str, Any]] = {
    **{
        name: {"preset": {"name": name, "fraction": 1.0}}
        for name in (
            "fedadagrad",
            "fedadam",
            "fedavgm",
            "fedfv",
            "fednova",
            "fedprox",
            "fedyogi",
            "projected-stc",
            "q-fedavg",
            "scaffold",
        )
    },
    **{
        name: {"aggregate": name, "select": {"name": "uniform", "fraction": 1.0}}
        for name in ("geometric-median", "median", "norm-clip", "trimmed-mean")
    },
    **{
        name: {
            "aggregate": {"name": name, "byzantine": 0},
            "select": {"name": "uniform", "fraction": 1.0},
            "min_updates": 3,
        }
        for name in ("krum", "multi-krum")
    },
    "several at once": {
        "select": {"name": "uniform", "fraction": 1.0},
        "aggregate": {"name": "fedfv", "tau": 2},
        "hooks": [
            {"name": "fedprox", "mu": 0.1},
            {"name": "scaffold", "option": "I", "dense": True},
            "fedavgm",
            "stc",
        ],
    },
}


def experiment(logic: dict[str, Any], **changed: Any) -> Experiment:
    tree: dict[str, Any] = {
        "rounds": 4,
        "clients": 4,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "evaluate": {"every": 4},
            "partition": {"name": "shards", "per_client": 3},
            "train": {"batch_size": 64, "rate": 0.05},
        },
        "logic": logic,
        "network": {"address": "127.0.0.1:0", "heartbeat_s": 30},
    }
    return Experiment(**{**tree, **changed})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns_and_a_resumed_run_ends_in_the_same_bits(name) -> None:
    what = experiment(ALGORITHMS[name])
    straight = simulate(what)
    with straight:
        expected = list(straight)

    first, second = simulate(what), simulate(what)
    with first:
        rounds = first.rounds()
        next(rounds), next(rounds)
        second.restore(first.checkpoint())
    with second:
        assert len(list(second)) == 2
    assert second.weights.tobytes() == straight.weights.tobytes()
    assert expected[-1].accuracy > 0.15, "it learns: a tenth would be chance"


def test_every_experiment_of_the_page_can_be_run() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 10
    for block in blocks:
        logic = yaml.safe_load(block)["logic"]
        simulate(experiment(logic, clients=8))


def test_every_name_of_the_page_exists() -> None:
    tables = {"hook": HOOKS, "aggregator": AGGREGATORS, "preset": PRESETS}
    rows = [row.split("|") for row in PAGE.read_text().split("\n\n")[2].splitlines()[2:]]
    assert rows
    for row in rows:
        there = {name for kind in row[2].split(",") for name in tables[kind.strip()]}
        assert set(re.findall(r"`([\w-]+)`", row[1])) <= there


@pytest.mark.parametrize(
    ("logic", "reason"),
    [
        ({"aggregate": {"name": "median", "weights": "samples"}}, "unknown setting 'weights'"),
        ({"aggregate": {"name": "krum", "byzantine": 1}}, "set logic.min_updates to 5 or more"),
        ({"hooks": ["scaffold", "stc"]}, "set dense: true in scaffold"),
        ({"hooks": ["stc", "fedadam"]}, "put FedAdam before Stc"),
        ({"aggregate": "fednova", "hooks": ["fedprox"]}, "they must be the same"),
        ({"preset": {"name": "fedprox", "mu": -1}}, "mu must be 0 or more"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(logic, reason) -> None:
    with pytest.raises(ExperimentError) as caught:
        simulate(experiment(logic))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
