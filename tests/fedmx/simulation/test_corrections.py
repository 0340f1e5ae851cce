"""Corrections and aggregators by name: their page, and what cannot be combined."""

from __future__ import annotations

import re

import pytest
import yaml

from fedmx import ExperimentError, simulate
from tests.fedmx.algorithms import ASYNCHRONOUS, experiment
from tools.algorithm_pages import FOLDER

PAGES = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.md")}


@pytest.mark.parametrize("page", PAGES)
def test_every_experiment_of_an_algorithms_page_can_be_run(page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGES[page], re.S)
    assert blocks or page == "compression"
    for block in blocks:
        logic = yaml.safe_load(block)["logic"]
        waits = not any(name in block for name in ASYNCHRONOUS)
        clock = {"clock": {"deadline_s": 600 if waits else None}}
        simulate(experiment(logic, clients=20, **clock))


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
        ({"preset": {"name": "fedprox", "mu": -1}}, "mu: must be at least 0"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(logic, reason) -> None:
    with pytest.raises(ExperimentError) as caught:
        simulate(experiment(logic))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
