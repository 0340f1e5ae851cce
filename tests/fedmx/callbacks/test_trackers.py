"""What MLflow and Weights & Biases hold of a run, read with their own readers."""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import (
    Callback,
    Experiment,
    FedmxError,
    KeepBest,
    MLflowLogger,
    Round,
    RunFolder,
    WandbLogger,
    recorded,
    simulate,
)
from fedmx.callbacks.trackers import Tracker, files_of, name_of, numbers_in, settings_of
from fedmx.run.identity import new_folder
from fedmx.server.evaluation import Evaluation
from fedmx.server.step_back import StepBack
from layers.extras import install
from layers.logic import RoundReport, Traffic

ROUNDS = 3


def experiment() -> Experiment:
    compute = {"model": "logistic", "data": {"name": "blobs", "tests": 50}}
    return Experiment(name="tracked", rounds=ROUNDS, clients=4, compute=compute)


def run(parent: Path, *callbacks: Any, stop_after: int = ROUNDS) -> RunFolder:
    """Run, leave the loop after a round, and resume; each part with the callbacks."""
    of = experiment()
    folder = RunFolder.create(parent, of.name, of.to_yaml(), {"digest": of.digest()})
    for round in (rounds := recorded(simulate(of, callbacks=callbacks), folder)):
        if round.round == stop_after < ROUNDS:
            break
    rounds.close()
    if stop_after < ROUNDS:
        for _ in recorded(simulate(of, callbacks=callbacks), folder):
            pass
    return folder


# --- what every tracker is sent -------------------------------------------------------------


class Sent(Tracker):
    """Keeps what it would send."""

    def __init__(self, known: int) -> None:
        super().__init__()
        self.known = known  # the last round that was sent before
        self.all: list[tuple[int, dict[str, float]]] = []

    def on_begin(self, run) -> None:
        self._go_on(run, self.known)

    def _send(self, round, numbers) -> None:
        self.all.append((round, dict(numbers)))


def numbered(round: int, accuracy: float, **more: Any) -> Round:
    report = RoundReport(round, 0.1, 2, (), Traffic())
    return Round(report, Evaluation({"accuracy": accuracy}), seconds=1.0, elapsed_s=1.0, **more)


def test_a_round_is_sent_once_and_again_after_a_step_back() -> None:
    tracker, simulation = Sent(2), simulate(experiment())
    simulation.remember({"round": round, "accuracy": 0.25} for round in (1, 2, 3))
    tracker.on_begin(simulation)
    step = StepBack(5, 3, "a broken model", (), ())
    tracker.on_round(numbered(3, 0.5))
    tracker.on_round(numbered(4, 0.5))
    tracker.on_round(numbered(4, 0.75, stepped_back=(step,)))
    tracker.on_round(numbered(5, 1.0))
    sent = [(round, numbers["accuracy"]) for round, numbers in tracker.all]
    assert sent == [(3, 0.25), (4, 0.5), (4, 0.75), (5, 1.0)]


def test_what_is_sent_of_a_round_are_its_finite_numbers() -> None:
    record = {"round": 3, "accuracy": 0.5, "lost": 2, "loss": math.inf, "train_loss": math.nan}
    others = {"epsilon": None, "virtual": True, "model_sha256": "0f", "participants": [1, 2]}
    found = numbers_in({**record, **others})
    assert found == {"accuracy": 0.5, "lost": 2.0}
    assert {type(number) for number in found.values()} == {float}


def test_a_run_without_a_folder_has_the_name_of_its_experiment_and_no_files() -> None:
    simulation = simulate(experiment())
    assert (name_of(simulation), files_of(simulation)) == ("tracked", [])
    settings = settings_of(simulation)
    assert (settings["rounds"], settings["compute.data.tests"]) == ("3", "50")
    simulation.experiment = None
    assert (name_of(simulation), settings_of(simulation)) == ("fedmx", {})


# --- MLflow, in its local file store --------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file:{tmp_path / 'mlruns'}"


def runs_in(store: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    return client, list(client.search_runs([client.get_experiment_by_name("fedmx").experiment_id]))


def history(client: Any, run: Any, metric: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, metric)]


def test_mlflow_has_settings_numbers_of_each_round_and_files(tmp_path: Path, store: str) -> None:
    folder = run(tmp_path / "runs", KeepBest(), MLflowLogger(tracking_uri=store))
    client, (found,) = runs_in(store)
    assert (found.info.run_name, found.info.status) == (folder.name, "FINISHED")
    assert found.data.params["compute.model"] == "logistic"
    assert found.data.params["rounds"] == "3"
    for metric in ("accuracy", "loss", "up_bytes"):
        recorded_ones = [(one["round"], one[metric]) for one in folder.rounds()]
        assert history(client, found, metric) == recorded_ones
    assert found.data.params == settings_of(simulate(experiment()))
    first = numbers_in(folder.rounds()[0])
    assert {(1, value) for value in first.values()} == {
        one for name in first for one in history(client, found, name) if one[0] == 1
    }
    assert set(found.data.metrics) == set(first)
    kept = {one.path for one in client.list_artifacts(found.info.run_id)}
    assert kept == {"experiment.yaml", "model.safetensors", "report.html", "best.safetensors"}


def test_a_resumed_run_goes_on_in_its_run_of_mlflow_and_logs_no_round_twice(
    tmp_path: Path, store: str
) -> None:
    folder = run(tmp_path / "runs", MLflowLogger(tracking_uri=store, files=False), stop_after=2)
    client, (found,) = runs_in(store)
    assert [step for step, _ in history(client, found, "accuracy")] == [1, 2, 3]
    assert (found.info.status, found.data.tags["fedmx.reason"]) == ("FINISHED", folder.reason)
    assert not client.list_artifacts(found.info.run_id)


def test_two_runs_whose_folders_have_one_name_are_two_runs_in_mlflow(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmx.run.folder.new_folder", _of_one_name)
    first, second = (
        run(tmp_path / machine, MLflowLogger(tracking_uri=store, run_name=name, files=False))
        for machine, name in (("one", None), ("another", "mine"))
    )
    assert first.name == second.name
    _, found = runs_in(store)
    names = {one.data.tags["fedmx.run"]: one.info.run_name for one in found}
    assert names == {first.facts["run"]: first.name, second.facts["run"]: "mine"}


def _of_one_name(parent: Path, name: str, time: str, fill: Callable[[Path], None]) -> Path:
    """Make the folder of a run that starts in the same second as all others."""
    return new_folder(parent, name, "20260131-093000", fill)


def test_mlflow_takes_many_and_long_settings(tmp_path: Path, store: str) -> None:
    logger = MLflowLogger(tracking_uri=store)
    logger.on_begin(simulate(experiment()))
    logger._log_settings({f"a.key.{number:03}": "x" * 600 for number in range(250)})
    _, (found,) = runs_in(store)
    long = {key: value for key, value in found.data.params.items() if key.startswith("a.key.")}
    assert long == {f"a.key.{number:03}": "x" * 500 for number in range(250)}


def test_a_run_that_fails_or_is_left_has_ended_so_in_mlflow_too(store: str) -> None:
    failing, left = (
        simulate(experiment(), callbacks=[MLflowLogger(tracking_uri=store)]) for _ in range(2)
    )
    with pytest.raises(ValueError, match="no more"), failing.calling():
        raise ValueError("no more")
    next(rounds := left.rounds())
    rounds.close()
    _, found = runs_in(store)
    assert {one.info.status for one in found} == {"FAILED", "KILLED"}
    assert {one.info.run_name for one in found} == {"tracked"}
    assert "ValueError: no more" in {one.data.tags["fedmx.reason"] for one in found}


def test_a_store_that_mlflow_refuses_is_one_line() -> None:
    simulation = simulate(experiment(), callbacks=[MLflowLogger(tracking_uri="nonsense:there")])
    with pytest.raises(FedmxError, match=r"^MLflowLogger: ") as caught:
        next(simulation.rounds())
    assert "\n" not in str(caught.value)


# --- Weights & Biases, offline --------------------------------------------------------------


PRIVATE: dict[str, Any] = {
    "privacy": {"name": "central", "clip": 0.5, "delta": 1e-2, "noise": 1.1},
    "logic": {
        "preset": {"name": "fedavg", "weights": "uniform"},
        "selector": {"name": "poisson", "probability": 0.5},
        "min_updates": 0,
    },
}


class Loud(Callback):
    """Prints who took part, as logs do."""

    def on_round(self, round) -> None:
        print(f"clients {round.participants} took part")


def test_wandb_keeps_no_private_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    for deployed in (False, True):
        of = Experiment.from_dict({**experiment().tree(), **PRIVATE})
        logger = WandbLogger(mode="offline", folder=tmp_path)
        folder = RunFolder.create(tmp_path, of.name, of.to_yaml(), {})
        with simulate(of, callbacks=[logger, Loud()]) as server:
            server.network.untrusted = deployed  # type: ignore[misc]
            list(recorded(server, folder))
        wandb.teardown()
        kept = b"".join(one.read_bytes() for one in logger.path.rglob("*") if one.is_file())
        assert (b"took part" in kept, b"down_bytes" in kept) == (not deployed, not deployed)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunFolder, Path]]:
    """A run that was resumed, and what Weights & Biases wrote of its second part."""
    import wandb

    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        logger = WandbLogger(mode="offline", folder=folder)
        made = run(folder / "runs", logger, stop_after=2)
        wandb.teardown()  # its own process ends, and has written all
        (written,) = logger.path.glob("*.wandb")
        yield made, written


def records_in(path: Path) -> Iterator[Any]:
    """The records that were written: LevelDB's log format, whose blocks have 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts = path.read_bytes(), 7, b""  # after the file's own header
    assert content.startswith(b":W&B")
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def test_wandb_has_the_settings_and_numbers_of_all_rounds(offline: tuple[RunFolder, Path]) -> None:
    folder, path = offline
    records = list(records_in(path))
    (begun,) = [one.run for one in records if one.WhichOneof("record_type") == "run"][:1]
    assert (begun.project, begun.run_id) == ("fedmx", folder.facts["run"])
    assert begun.display_name == folder.name
    settings = {one.key: json.loads(one.value_json) for one in begun.config.update}
    assert settings["compute.model"] == "logistic"
    rounds = [
        {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [int(one["round"]) for one in rounds] == [1, 2, 3]
    assert [one["accuracy"] for one in rounds] == [one["accuracy"] for one in folder.rounds()]


def test_wandb_is_told_how_the_run_ended(offline: tuple[RunFolder, Path]) -> None:
    _, path = offline
    said = {
        (one.key or one.nested_key[0]): json.loads(one.value_json)
        for record in records_in(path)
        if record.WhichOneof("record_type") == "summary"
        for one in record.summary.update
    }
    assert (said["status"], said["reason"]) == ("done", "all 3 rounds were run")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"mode": "offlin"}, "mode: .*'offlin'"), ({"project": "a/b", "mode": "disabled"}, "'a/b'")],
)
def test_settings_that_weights_and_biases_refuses_are_one_line(settings: Any, said: str) -> None:
    simulation = simulate(experiment(), callbacks=[WandbLogger(**settings)])
    with pytest.raises(FedmxError, match=rf"^WandbLogger: .*{said}") as caught:
        next(simulation.rounds())
    assert "\n" not in str(caught.value)


# --- where they are not installed -----------------------------------------------------------


@pytest.mark.parametrize(
    ("logger", "package"), [(MLflowLogger(), "mlflow"), (WandbLogger(), "wandb")], ids=str
)
def test_a_tracker_that_is_not_installed_is_one_line_with_the_command(
    logger: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    simulation = simulate(experiment(), callbacks=[logger])
    with pytest.raises(FedmxError, match=re.escape(install(package))):
        next(simulation.rounds())
