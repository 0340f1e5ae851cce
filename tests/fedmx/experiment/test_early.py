"""An experiment made in Python is refused where it is made, not where it is run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import ClientSide, Dataset, Experiment, ExperimentError, Hook, Raw, simulate
from layers.compute.data.targets import Targets
from tests.fedmx.experiment.texts import LEAST

ROOT = Path(__file__).resolve().parents[3]
DIGITS = {"model": "lenet5", "data": "digits"}
RIGHT = {"rounds": 1, "clients": 2, "compute": DIGITS}


def own_data(dtype: type = np.float32) -> Dataset:
    x, y = np.zeros((20, 1, 8, 8), dtype), np.arange(20) % 2
    return Dataset("mine", Raw(x, y), Raw(x, y), Targets("classes", 2), (1, 8, 8))


class Misspelt(Hook):
    def clientt(self) -> ClientSide:
        return ClientSide(self)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compute": {**DIGITS, "model": "lenet"}}, r"compute\.model: unknown model 'lenet'; did"),
        ({"compute": {**DIGITS, "data": "digit"}}, r"compute\.data: unknown data set 'digit'"),
        ({"compute": {**DIGITS, "data": {"name": "digits", "shuffle": 1}}}, r"data\.shuffle"),
        ({"compute": {**DIGITS, "partition": {"name": "iid", "alfa": 1}}}, r"partition\.alfa"),
        ({"compute": {**DIGITS, "train": {"schedule": {"name": "cosin"}}}}, r"schedule: unknown"),
        ({"logic": {"preset": "fedprx"}}, r"logic\.preset: unknown preset 'fedprx'"),
        ({"logic": {"selector": {"name": "uniform", "fraction": 7}}}, r"fraction: .* 1.*, not 7"),
        ({"logic": {"hooks": [Misspelt()]}}, r"logic\.hooks\.0: Misspelt\.clientt is not a hook"),
        ({"logic": {"aggregator": "medain"}}, r"logic\.aggregator: unknown aggregator"),
        ({"clock": {"devices": "tier"}}, r"clock\.devices: unknown devices 'tier'"),
    ],
)
def test_a_wrong_part_is_named_when_the_experiment_is_made(given: Any, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        Experiment(**{"rounds": 1, "clients": 2, "compute": DIGITS, **given})


@pytest.mark.parametrize(
    "make",
    [
        lambda tree, _: Experiment(**tree),
        lambda tree, _: Experiment.from_dict(tree),
        lambda tree, _: Experiment.parse(json.dumps(tree)),
        lambda tree, _: Experiment.from_dict(RIGHT).with_overrides(
            [f"logic={json.dumps(tree['logic'])}"]
        ),
        lambda tree, file: (file.write_text(json.dumps(tree)), Experiment.read(file)),
    ],
    ids=["constructor", "from_dict", "parse", "with_overrides", "read"],
)
@pytest.mark.parametrize(
    ("logic", "setting"),
    [
        ({"selector": {"name": "uniform", "fraction": 7}}, "fraction"),
        ({"aggregator": {"name": "mean", "weights": "sampels"}}, "weights"),
        ({"hooks": [{"name": "fedprox", "mu": -1}]}, "mu"),
    ],
)
def test_every_way_to_make_an_experiment_refuses_the_same_settings(
    make: Callable[[Any, Path], Any], logic: Any, setting: str, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError, match=rf"logic\..*{setting}"):
        make({**RIGHT, "logic": logic}, tmp_path / "e.yaml")


def test_all_problems_are_named_at_once() -> None:
    wrong = {"compute": {**DIGITS, "model": "lenet"}, "logic": {"preset": "fedprx"}}
    with pytest.raises(ExperimentError) as caught:
        Experiment(rounds=1, clients=2, **wrong)
    assert len(caught.value.problems) == 2


def test_a_dataset_is_checked_with_the_experiment() -> None:
    compute = {"model": "lenet5", "data": own_data(np.uint8)}
    with pytest.raises(ExperimentError, match=r"compute\.normalise: is not given, and the data"):
        Experiment(rounds=1, clients=4, compute=compute)
    compute["normalise"] = {"scale": 255}
    with pytest.raises(ExperimentError, match=r"compute\.partition: iid: 20 samples are too few"):
        Experiment(rounds=1, clients=40, compute=compute)
    assert Experiment(rounds=1, clients=4, compute=compute).clients == 4


def test_the_check_loads_imports_and_builds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fedmx import Experiment\n"
        "data = {'name': 'arrays', 'path': 'nowhere.npz'}\n"
        "compute = {'model': 'not.there:Net', 'data': data}\n"
        "Experiment(rounds=1, clients=2, compute=compute)\n"
        "print('mxnet' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Experiment.read("e.yaml", "rounds=3"), "overrides: .*, not 'rounds=3'"),
        (lambda: Experiment.parse(LEAST, overrides=[3]), "overrides: .* holds 3"),
        (lambda: Experiment.read(7), "7: .* 'experiment.yaml'"),
        (lambda: simulate("e.yaml"), r"'e\.yaml' .*Experiment\.read\('e\.yaml'\)"),
        (lambda: simulate({"rounds": 3}), r"a mapping .*Experiment\.from_dict\("),
        (lambda: simulate(None), "null .* Experiment"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_call_to_write(
    make: Callable[[], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(LEAST)
    with pytest.raises(ExperimentError, match=f"^{said}"):
        make()


def test_a_value_that_is_not_a_part_is_reported_the_public_class() -> None:
    with pytest.raises(ExperimentError) as caught:
        Experiment(rounds=1, clients=2, compute=DIGITS, logic={"selector": int})
    assert "a class derived from fedmx.Selector" in str(caught.value)
    assert "int(" not in str(caught.value)
