"""What MLflow and Weights & Biases hold of a run, read with their own readers."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import (
    Experiment,
    FedmxError,
    KeepBest,
    MLflowLogger,
    RunFolder,
    WandbLogger,
    recorded,
    simulate,
)

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


# --- MLflow, in its local file store --------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file:{tmp_path / 'mlruns'}"


def runs_in(store: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("fedmx")
    return client, list(client.search_runs([experiment.experiment_id]))


def history(client: Any, run: Any, metric: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, metric)]


def test_mlflow_has_the_settings_the_numbers_of_each_round_and_the_files(
    tmp_path: Path, store: str
) -> None:
    folder = run(tmp_path / "runs", KeepBest(), MLflowLogger(tracking_uri=store))
    client, (found,) = runs_in(store)
    assert found.info.run_name == folder.name
    assert found.info.status == "FINISHED"
    assert found.data.params["compute.model"] == "logistic"
    assert found.data.params["rounds"] == "3"
    for metric in ("accuracy", "loss", "up_bytes"):
        recorded_ones = [(one["round"], one[metric]) for one in folder.rounds()]
        assert history(client, found, metric) == recorded_ones
    kept = {one.path for one in client.list_artifacts(found.info.run_id)}
    assert kept == {"experiment.yaml", "model.safetensors", "report.html", "best.safetensors"}


def test_a_resumed_run_goes_on_in_its_run_of_mlflow_and_logs_no_round_twice(
    tmp_path: Path, store: str
) -> None:
    folder = run(tmp_path / "runs", MLflowLogger(tracking_uri=store, files=False), stop_after=2)
    client, (found,) = runs_in(store)
    assert [step for step, _ in history(client, found, "accuracy")] == [1, 2, 3]
    assert found.info.status == "FINISHED"
    assert found.data.tags["fedmx.reason"] == folder.reason


def test_a_run_whose_caller_leaves_it_is_killed_in_mlflow(tmp_path: Path, store: str) -> None:
    simulation = simulate(experiment(), callbacks=[MLflowLogger(tracking_uri=store)])
    next(rounds := simulation.rounds())
    rounds.close()
    _, (found,) = runs_in(store)
    assert found.info.status == "KILLED"


def test_a_store_that_mlflow_refuses_is_one_line() -> None:
    simulation = simulate(experiment(), callbacks=[MLflowLogger(tracking_uri="nonsense:there")])
    with pytest.raises(FedmxError, match=r"^MLflowLogger: ") as caught:
        next(simulation.rounds())
    assert "\n" not in str(caught.value)


# --- Weights & Biases, offline --------------------------------------------------------------


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
        assert logger.path is not None
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


def test_wandb_has_the_settings_and_the_numbers_of_all_rounds(
    offline: tuple[RunFolder, Path],
) -> None:
    folder, path = offline
    records = list(records_in(path))
    (begun,) = [one.run for one in records if one.WhichOneof("record_type") == "run"][:1]
    assert (begun.project, begun.run_id, begun.display_name) == ("fedmx", folder.name, folder.name)
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


# --- where they are not installed -----------------------------------------------------------


@pytest.mark.parametrize(
    ("logger", "package"), [(MLflowLogger(), "mlflow"), (WandbLogger(), "wandb")], ids=str
)
def test_a_tracker_that_is_not_installed_is_one_line_with_the_command(
    logger: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    simulation = simulate(experiment(), callbacks=[logger])
    with pytest.raises(FedmxError, match=rf"needs .*; pip install fedmx\[{package}\]"):
        next(simulation.rounds())
