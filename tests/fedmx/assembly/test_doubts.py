"""What an experiment does that its author may not have meant is one line before round 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Dataset, Experiment, ExperimentError, Raw, simulate
from fedmx.assembly.doubts import of_data
from layers.compute.data.targets import Targets
from tests.fedmx.command_line import fedmx

SAMPLES = 40
RNG = np.random.default_rng(1)
X = RNG.random((SAMPLES, 1, 4, 4), dtype=np.float32)
Y = np.arange(SAMPLES) % 4


def data(classes: int = 4, train: Any = Y, test: Any = Y, x: np.ndarray = X) -> Dataset:
    return Dataset(
        "mine",
        Raw(x, np.asarray(train)),
        Raw(x, np.asarray(test)),
        Targets("classes", classes),
        (1, 4, 4),
    )


@dataclass(frozen=True)
class Own:
    """A partition as a user writes it."""

    rows: Any

    def split(self, labels, users, clients, rng, *, allow_empty=False):
        return self.rows


def experiment(**changed: Any) -> Experiment:
    compute = {"model": "logistic", "data": data(), "engine": "numpy", **changed.pop("compute", {})}
    return Experiment(**{"rounds": 1, "clients": 4, "compute": compute, **changed})


def halves(*parts: Any) -> dict[str, Any]:
    return {"partition": Own([np.array(part) for part in parts])}


QUARTERS = [np.arange(client, SAMPLES, 4) for client in range(4)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"compute": halves(*[part[:9] for part in QUARTERS])}, "Own has 4 in no client's part"),
        (
            {"compute": halves([0, 1], [1, 2], [2, 3], [3, 4, 4])},
            "35 in no client's part and 4 in the parts of several clients",
        ),
        ({"compute": {"data": data(9)}}, "9 classes, and no training sample of 5 of them (4, 5,"),
        ({"compute": {"data": data(4, Y % 3)}}, "the test split has samples of 3"),
        (
            {"compute": {"data": data(5001, np.where(np.arange(SAMPLES), Y, 5000))}},
            "5,001 classes, and no training sample of 4,996 of them",
        ),
        ({"compute": {"normalise": {"scale": 255}}}, "compute.normalise"),
        ({"compute": {"data": data(x=X * 255), "normalise": {"scale": 1}}}, "compute.normalise"),
        ({"compute": {"train": {"steps": 3, "epochs": 2}}}, "steps 3 decides"),
        ({"logic": {"selector": {"name": "uniform", "count": 2, "fraction": 0.5}}}, "count 2"),
        ({"logic": {"preset": {"name": "fedavg", "count": 2, "fraction": 1}}}, "count 2 decides"),
        ({"logic": {"preset": "fedbuff"}}, "concurrency 10 is more than the 4 clients"),
    ],
)
def test_what_may_not_be_meant_is_said_before_round_1(
    changed: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with simulate(experiment(**changed)):
        (line,) = [one.getMessage() for one in caplog.records if "intended" in one.getMessage()]
    assert said in line


@pytest.mark.needs_mxnet
def test_a_softmax_in_the_model_is_seen_in_its_outputs(caplog: pytest.LogCaptureFixture) -> None:
    from mxnet.gluon import nn

    def net(classes: int) -> nn.HybridSequential:
        made = nn.HybridSequential()
        made.add(nn.Flatten(), nn.Dense(classes), nn.HybridLambda("softmax"))
        return made

    with simulate(experiment(compute={"model": net, "engine": "mxnet"})):
        assert "compute.model: the outputs of each sample add up to 1" in caplog.text


@pytest.mark.needs_mxnet
def test_an_lstm_is_recommended_the_engine_that_trains_it_faster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokens = Raw(RNG.integers(0, 9, (SAMPLES, 25), dtype=np.int32), Y % 2)
    words = Dataset("words", tokens, tokens, Targets("classes", 2), (25,))
    compute = {"model": {"name": "lstm", "vocabulary": 9, "dimensions": 3}, "data": words}
    with simulate(experiment(compute={**compute, "engine": "mxnet"})):
        assert "compute.engine: torch" in caplog.text


def test_an_ordinary_experiment_raises_no_doubt(caplog: pytest.LogCaptureFixture) -> None:
    with simulate(experiment()):
        assert "intended" not in caplog.text
    assert list(of_data(Assembly(experiment()))) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (QUARTERS[:3], r"Own\.split returned 3 parts for 4 clients"),
        ([*QUARTERS[:3], [SAMPLES]], rf"index {SAMPLES} for client 3"),
        ([*QUARTERS[:3], [-1]], r"index -1 for client 3"),
        ([*QUARTERS[:3], [0.5]], r"float64 .* client 3"),
        ([*QUARTERS[:3], [[1]]], r"shape \(1, 1\) for client 3"),
    ],
)
def test_a_partition_of_ones_own_is_checked_before_anything_runs(parts: Any, said: str) -> None:
    with pytest.raises(ExperimentError, match=rf"compute\.partition: .*{said}"):
        simulate(experiment(compute={"partition": Own(parts)}, logic={"hooks": []}))


def test_a_part_may_be_a_list_or_empty() -> None:
    parts = [*map(list, QUARTERS[:3]), []]
    assert len(Assembly(experiment(compute={"partition": Own(parts)})).parts[0][3]) == 0


def test_a_cohort_of_more_clients_than_there_are_is_refused() -> None:
    for preset in ({"name": "fedavg", "count": 5}, {"name": "power-of-choice", "candidates": 5}):
        with pytest.raises(ExperimentError, match="5 clients in a round, and there are 4"):
            simulate(experiment(logic={"preset": preset}))


def test_the_partition_that_is_shown_has_its_doubts(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x_train=X, y_train=Y % 3, x_test=X, y_test=Y)
    compute = {"model": "2nn", "data": {"name": "arrays", "path": "mine.npz"}}
    (tmp_path / "e.yaml").write_text(json.dumps({"rounds": 1, "clients": 4, "compute": compute}))
    shown = fedmx("data", "show", "e.yaml", cwd=tmp_path)
    assert shown.code == 0
    assert "4 classes, and no training sample of 1 of them (3)" in shown.err


@pytest.mark.parametrize(
    ("clients", "partition", "doubtful"), [(3, "by-user", 0), (3, "iid", 1), (2, "by-user", 1)]
)
def test_clients_that_are_not_those_of_the_table_are_doubted(
    clients: int, partition: str, doubtful: int, tmp_path: Path
) -> None:
    rows = "".join(f"{row},{row}.5,{'abc'[row % 3]}\n" for row in range(12))
    (tmp_path / "clinic.csv").write_text("age,price,hospital\n" + rows)
    table = {"path": str(tmp_path / "clinic.csv"), "target": "price", "client": "hospital"}
    compute = {"model": "2nn", "data": {"name": "table", **table}, "partition": partition}
    given = {"rounds": 1, "clients": clients, "compute": compute}
    said = [one for one in of_data(Assembly(Experiment.from_dict(given))) if "hospital" in one]
    assert len(said) == doubtful
    assert all("`clients: 3`" in one for one in said)
