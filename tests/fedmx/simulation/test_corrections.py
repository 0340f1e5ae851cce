"""Corrections and aggregators by name: their page, and what cannot be combined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fedmx import ExperimentError, simulate
from layers.logic import AGGREGATORS, HOOKS, PRESETS, SELECTORS
from tests.fedmx.algorithms import ASYNCHRONOUS, experiment

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"


def test_every_experiment_of_the_page_can_be_run() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 10
    for block in blocks:
        logic = yaml.safe_load(block)["logic"]
        waits = not any(name in block for name in ASYNCHRONOUS)
        clock = {"clock": {"deadline_s": 600 if waits else None}}
        simulate(experiment(logic, clients=8, **clock))


def test_every_name_of_the_page_exists() -> None:
    tables = {
        "hook": HOOKS,
        "aggregator": AGGREGATORS,
        "preset": PRESETS,
        "selector": SELECTORS,
    }
    rows = [row.split("|") for row in PAGE.read_text().split("\n\n")[2].splitlines()[2:]]
    assert rows
    for row in rows:
        there = {name for kind in row[2].split(",") for name in tables[kind.strip()]}
        assert set(re.findall(r"`([\w-]+)`", row[1])) <= there


@pytest.mark.parametrize(
    ("logic", "reason"),
    [
        ({"aggregator": {"name": "median", "weights": "samples"}}, "unknown setting 'weights'"),
        ({"aggregator": {"name": "krum", "byzantine": 1}}, "set logic.min_updates to 5 or more"),
        ({"aggregator": "trimmed-mean"}, "set logic.min_updates to 10 or more"),
        ({"aggregator": "median", "hooks": ["scaffold"]}, "Scaffold sums what each client sends"),
        ({"hooks": ["scaffold", "stc"]}, "set dense: true"),
        ({"hooks": ["stc", "top-k"]}, "Stc and TopK each encode the update"),
        ({"aggregator": "fednova", "hooks": ["fedprox"]}, "they must be the same"),
        ({"preset": {"name": "fedprox", "mu": -1}}, "mu must be 0 or more"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(logic, reason) -> None:
    with pytest.raises(ExperimentError) as caught:
        simulate(experiment(logic))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
