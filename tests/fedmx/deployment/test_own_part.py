"""A client's data: a file of its own or a part of it, or its part of the experiment's data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment
from fedmx.deployment.join import OwnPart
from fedmx.errors import FedmxError
from fedmx.protocol.messages import Setup
from layers.compute.engines.engine import Compute
from layers.compute.errors import DataError

EXPERIMENT = """
name: own
rounds: 1
clients: 3
compute: {engine: numpy, model: logistic, data: digits, normalise: {scale: 16}, partition: iid}
"""
SAMPLES = 24


def learnt(own: OwnPart, text: str = EXPERIMENT) -> Compute:
    """Return the compute of client 1 that a server sends this experiment."""
    experiment = Experiment.parse(text, modules=None)
    setup = Setup("run", experiment.to_yaml(), experiment.digest(), 1, (1, 8, 8), 10)
    return own.learn(setup)[1]


def labels_of(own: OwnPart) -> list[int]:
    """Return the labels of client 1, sorted."""
    return sorted(np.asarray(learnt(own).samples.y).tolist())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A client's own data; each label is there as often as its number says."""
    labels = np.repeat(np.arange(10), np.arange(10))[-SAMPLES:]
    images = np.arange(SAMPLES * 64, dtype=np.float32).reshape(SAMPLES, 1, 8, 8)
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    return path


def test_a_client_uses_all_of_its_own_data(file: Path) -> None:
    assert labels_of(OwnPart(file)) == [7] * 7 + [8] * 8 + [9] * 9


def test_a_client_uses_one_of_the_parts_of_its_own_data(file: Path) -> None:
    """The number of parts is the client's choice: it is not that of the experiment's clients."""
    parts = [labels_of(OwnPart(file, (number, 4))) for number in range(4)]
    assert [len(one) for one in parts] == [SAMPLES // 4] * 4
    assert sorted(label for one in parts for label in one) == labels_of(OwnPart(file))


@pytest.mark.parametrize(
    "data", [{"name": "arrays", "path": "PATH"}, {"name": "own_module:load", "source": "PATH"}]
)
def test_a_server_chooses_no_file_of_a_client(
    data: dict[str, str], file: Path, tmp_path: Path
) -> None:
    """Whether the file is there makes no difference to what the server is told."""
    (tmp_path / "own_module.py").write_text(
        "from pathlib import Path\n"
        "def load(source: str) -> tuple:\n"
        "    raise AssertionError(source)\n"
    )
    said = set()
    for path in (file, tmp_path / "missing.npz"):
        given = {key: value.replace("PATH", str(path)) for key, value in data.items()}
        text = EXPERIMENT.replace("data: digits", f"data: {json.dumps(given)}")
        own = OwnPart(modules=["own_module"], folder=tmp_path)
        with pytest.raises(FedmxError, match="--data") as caught:
            learnt(own, text)
        said.add(str(caught.value))
        assert len(learnt(replace(own, data=file), text).samples) == SAMPLES
    assert len(said) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": np.zeros((3, 1, 8, 4), np.float32)}, r"shape \(1, 8, 4\).* \(1, 8, 8\)"),
        ({"y_train": np.array([2, 3, 10])}, "labels from 2 to 10, .* 10 classes"),
        ({"y_train": np.array([-1, 3, 9])}, "labels from -1 to 9"),
        ({"x_train": np.zeros((0, 1, 8, 8)), "y_train": np.zeros(0, int)}, "no sample"),
        ({"y_train": None}, "y_train"),
        ({"x_test": None, "y_test": None}, ""),
    ],
)
def test_own_data_are_checked_before_the_client_takes_part(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    arrays: dict[str, Any] = {
        "x_train": np.zeros((3, 1, 8, 8), np.float32),
        "y_train": np.array([0, 5, 9]),
        "x_test": np.zeros((1, 1, 8, 8), np.float32),
        "y_test": np.array([1]),
    }
    arrays = {key: one for key, one in (arrays | changed).items() if one is not None}
    np.savez(tmp_path / "own.npz", **arrays)
    if not said:
        assert labels_of(OwnPart(tmp_path / "own.npz")) == [0, 5, 9]
        return
    with pytest.raises(DataError, match=said):
        labels_of(OwnPart(tmp_path / "own.npz"))


def test_a_client_expects_as_many_parts_as_the_experiment_has_clients() -> None:
    assert labels_of(OwnPart(part=(1, 3))) == labels_of(OwnPart())
    with pytest.raises(FedmxError) as caught:
        labels_of(OwnPart(part=(1, 4)))
    assert "4 parts" in str(caught.value)
    assert "3 clients" in str(caught.value)
