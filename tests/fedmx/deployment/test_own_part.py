"""A client's data: a file of its own or a part of it, or its part of the experiment's data."""

from __future__ import annotations

import json
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment
from fedmx.assembly.assembly import Assembly
from fedmx.deployment.join import OwnPart
from fedmx.errors import FedmxError
from fedmx.protocol.messages import Setup
from layers.compute.data.targets import Targets
from layers.compute.engines.engine import Compute
from layers.compute.errors import DataError

EXPERIMENT = """
name: own
rounds: 1
clients: 3
compute: {engine: numpy, model: logistic, data: digits, normalise: {scale: 16}, partition: iid}
"""
SAMPLES = 24


def learnt(own: OwnPart, text: str = EXPERIMENT, *overrides: str) -> Compute:
    """Return the compute of client 1 that a server sends this experiment."""
    experiment = Experiment.parse(text, modules=None, overrides=overrides)
    return own.learn(
        Setup(
            "run", experiment.to_yaml(), experiment.digest(), 1, (1, 8, 8), Targets("classes", 10)
        )
    )[1]


def labels_of(own: OwnPart, *overrides: str) -> list[int]:
    """Return the labels of client 1, sorted."""
    return sorted(np.asarray(learnt(own, EXPERIMENT, *overrides).samples.y).tolist())


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
    "data",
    [
        {"name": "arrays", "path": "PATH"},
        {"name": "table", "path": "PATH", "target": "label"},
        {"name": "own_module:load", "source": "PATH"},
    ],
)
def test_a_server_chooses_no_clients_file(data: dict[str, str], file: Path, tmp_path: Path) -> None:
    """Whether the file is there makes no difference to what the server is told."""
    (tmp_path / "own_module.py").write_text("def load(source): raise AssertionError(source)\n")
    said = set()
    for path in (file, file.with_name("nine.npz")):
        given = {key: value.replace("PATH", str(path)) for key, value in data.items()}
        text = EXPERIMENT.replace("data: digits", f"data: {json.dumps(given)}")
        own = OwnPart(modules=["own_module"], folder=tmp_path)
        with pytest.raises((FedmxError, DataError), match="from a server") as caught:
            learnt(own, text)
        said.add(str(caught.value).replace("nine", "mine"))
        assert len(learnt(replace(own, data=file), text).samples) == SAMPLES
    assert len(said) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": np.zeros((3, 1, 8, 4), np.float32)}, r"shape \(1, 8, 4\).* \(1, 8, 8\)"),
        ({"y_train": np.array([2, 3, 10])}, "labels y_train go from 2 to 10, .* 10 classes"),
        ({"y_train": np.array([-1, 3, 9])}, "labels y_train go from -1 to 9"),
        ({"x_train": np.zeros((0, 1, 8, 8)), "y_train": np.zeros(0, int)}, "no sample"),
        ({"y_train": None}, "y_train"),
        ({"x_test": None, "y_test": None}, ""),
    ],
)
def test_own_data_are_checked_before_the_client_takes_part(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    x, y = np.zeros((3, 1, 8, 8), np.float32), np.array([0, 5, 9])
    arrays = {"x_train": x, "y_train": y, "x_test": x[:1], "y_test": y[1:2], **changed}
    np.savez(tmp_path / "own.npz", **{key: one for key, one in arrays.items() if one is not None})
    if not said:
        assert labels_of(OwnPart(tmp_path / "own.npz")) == [0, 5, 9]
        return
    with pytest.raises(DataError, match=said):
        labels_of(OwnPart(tmp_path / "own.npz"))


@pytest.mark.parametrize("path", ["", ", path: of-the-server.csv"])
def test_a_client_reads_its_own_table_by_the_columns_of_the_experiment(
    path: str, tmp_path: Path
) -> None:
    table = "{name: table, target: kind, columns: [width, height], classes: [cat, dog, lynx]" + path
    rows = "".join(f"{row},{row + 0.5},lynx,{row}\n" for row in range(10))
    own = tmp_path / "own.csv"
    own.write_text("height,width,kind,number\n" + rows)
    experiment = Experiment.parse(
        EXPERIMENT,
        overrides=[f"compute.data={table}}}", "compute.normalise=null"],
    )
    targets = Targets("classes", 3)
    setup = Setup("run", experiment.to_yaml(), experiment.digest(), 1, (2,), targets)
    compute = OwnPart(own).learn(setup)[1]
    np.testing.assert_array_equal(compute.samples.x[:, 0], compute.samples.x[:, 1] + 0.5)
    assert compute.samples.y.tolist() == [2] * 8
    assert len(compute.tests()) == 2


def test_a_table_needs_an_experiment_that_names_its_columns(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"own\.csv: .*compute\.data is digits"):
        learnt(OwnPart(tmp_path / "own.csv"))


def test_a_client_expects_as_many_parts_as_the_experiment_has_clients() -> None:
    assert labels_of(OwnPart(part=(1, 3))) == labels_of(OwnPart())
    with pytest.raises(FedmxError) as caught:
        labels_of(OwnPart(part=(1, 4)))
    assert "4 parts" in str(caught.value)
    assert "3 clients" in str(caught.value)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, or looked for, since."""
    found: list[str] = []
    monkeypatch.setattr(_Audit, "found", found)
    return found


class _Audit:
    found: list[str] | None = None

    def __call__(self, event: str, given: tuple[object, ...]) -> None:
        if self.found is not None and event in ("open", "os.listdir", "os.scandir"):
            self.found.append(str(given[0]))


sys.addaudithook(_Audit())


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        "compute.data={{name: arrays, path: {file}}}",
        "compute.data={{name: 'own_data:Data', folder: {file}}}",
        "compute.data={{name: 'own_data:Data', files: [{{one: {file}}}]}}",
        "compute.partition={{name: 'own_data:Parts', path: {file}}}",
    ],
)
def test_no_path_from_the_server_is_opened(
    given: str, there: bool, file: Path, tmp_path: Path, opened: list[str]
) -> None:
    """A refusal is the same whether the file exists."""
    (tmp_path / "own_data.py").write_text("raise SystemExit('imported')")
    own = OwnPart(modules=["own_data"], folder=tmp_path)
    path = file if there else file.with_name("none.npz")
    opened.clear()
    with pytest.raises((FedmxError, DataError), match="cannot come from a server"):
        labels_of(own, given.format(file=path))
    assert not [one for one in opened if one.startswith(str(tmp_path))]


@pytest.mark.parametrize(
    "given", ["compute.start={file}", "compute.data={{name: arrays, path: {file}}}"]
)
def test_a_client_with_data_of_its_own_opens_them_alone(
    given: str, file: Path, tmp_path: Path, opened: list[str]
) -> None:
    other = tmp_path / "other.npz"
    other.write_bytes(file.read_bytes())
    opened.clear()
    assert len(labels_of(OwnPart(file), given.format(file=other))) == SAMPLES
    assert {one for one in opened if one.startswith(str(tmp_path))} == {str(file)}


SYNTHETIC = ("compute.data=synthetic", "compute.normalise=null", "compute.partition=by-user")


BLOBS = "{name: blobs, samples: [1, 20], shape: [1, 8, 8]}"


def compute_of(*overrides: str) -> Compute:
    """Return what client 1 trains with."""
    experiment = Experiment.parse(EXPERIMENT, overrides=overrides)
    shape = (60,) if experiment.compute.data.name == "synthetic" else (1, 8, 8)
    setup = Setup(
        "run",
        experiment.to_yaml(),
        experiment.digest(),
        1,
        shape,
        Targets("classes", 10),
    )
    return OwnPart().learn(setup)[1]


def test_a_client_makes_its_own_part_of_any_number_of_clients() -> None:
    """It is the part that it has in a simulation, whatever the number of clients."""
    few, many = compute_of(*SYNTHETIC), compute_of(*SYNTHETIC, "clients=1000000000")
    simulated = Assembly(Experiment.parse(EXPERIMENT, overrides=SYNTHETIC)).samples_of(1)
    for samples in (few.samples, many.samples):
        assert samples.x.tobytes() == simulated.x.tobytes()
        assert samples.y.tobytes() == simulated.y.tobytes()
    blobs = ("compute.data={name: blobs, shape: [1, 8, 8]}", "compute.normalise=null")
    assert len(compute_of(*blobs, "clients=1000000000").samples) == 20


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["clients=1000000000"], "100000"),
        (["clients=1000000", "compute.partition={name: dirichlet, min_samples: 0}"], "100000"),
        ([*SYNTHETIC[:2], "clients=1000000000"], "2000"),
        ([*SYNTHETIC[:2], "clients=1000000000", "compute.partition=dirichlet"], "2000"),
        ([f"compute.data={BLOBS}", "compute.normalise=null", "clients=1000000000"], "10000000"),
        (["rounds=2000000000"], "1000000"),
        (["attack={name: sign-flip, clients: 0.2}", "clients=1000000000"], "attack"),
    ],
)
def test_a_client_refuses_what_costs_it_too_much_before_the_first_round(
    overrides: list[str], named: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((FedmxError, DataError), match=named):
            compute_of(*overrides)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
