"""Sweeps in real processes: complete, killed, failed and resumed."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

import pytest

import fedmx as package
from fedmx import Experiment, FedmxError, RunFolder, SweepResult
from fedmx.sweeps.cells import axis_of
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.sweep import extend
from tests.fedmx.command_line import PATIENCE_S, CommandResult, ended, fedmx, started, wait_until

# An arm's name is a setting of its hook.
EXPERIMENT = """
name: small
seed: 5
rounds: 3
clients: 4
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {steps: 2, batch_size: 20}
logic:
  selector: {name: uniform, fraction: 0.5}
  hooks: [{name: "gate:Gate", arm: first}]
"""
# In round 2, a client waits while "close" exists, and an arm fails if "fail" exists.
GATE = """
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layers.logic import ClientContext, ClientSide, Hook, Update

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Gate(Hook):
    arm: str = "first"

    class Client(ClientSide):
        def send(self, update: Update, context: ClientContext) -> Update:
            arm = self.hook.arm
            while update.round == 2 and (HERE / "close").exists():
                (HERE / f"waiting-{arm}").touch()
                time.sleep(0.01)
            if update.round == 2 and arm == "second" and (HERE / "fail").exists():
                raise ZeroDivisionError("on purpose")
            scale = np.float32(1.0 if arm == "first" else 0.5)
            return replace(update, delta=update.delta * scale)
"""
VARY = ("--vary", "logic.hooks.0.arm=first,second")


def place(folder: Path) -> Path:
    (folder / "small.yaml").write_text(EXPERIMENT)
    (folder / "gate.py").write_text(GATE)
    return folder


def sweep_in(folder: Path) -> SweepFolder:
    (path,) = (folder / "runs").iterdir()
    return SweepFolder.open(path)


def models(sweep: SweepFolder) -> dict[str, bytes]:
    paths = {run.name: sweep.run_path(run) for run in sweep.runs}
    return {n: (p / "model.safetensors").read_bytes() for n, p in paths.items() if p is not None}


def written(sweep: SweepFolder) -> dict[str, int]:
    """The modification times of all files of all runs."""
    return {str(p): p.stat().st_mtime_ns for p in sweep.path.glob("*-2*/*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:
    """The result and the folder of an undisturbed sweep."""
    folder = place(tmp_path_factory.mktemp("whole"))
    words = ["sweep", "small.yaml", *VARY, "--seeds", "2", "--target", "0.2", "--own-modules"]
    return fedmx(*words, cwd=folder), folder


def test_a_report_of_a_sweep_has_its_paired_differences(whole: tuple[CommandResult, Path]) -> None:
    _, folder = whole
    sweep = sweep_in(folder)
    shown = fedmx("report", sweep.path, cwd=folder)
    assert shown.code == 0, shown
    again = fedmx("sweep", sweep.path, "--own-modules", cwd=folder).out.partition("table:")[0]
    (sweep.path / "report.html").unlink()
    assert fedmx("report", sweep.path, cwd=folder).code == 0
    assert shown.out == f"{again}report: {sweep.path / 'report.html'}\n"
    assert [one.parent for one in sweep.path.rglob("report.html")] == [sweep.path], "no run has one"
    page = (sweep.path / "report.html").read_text("utf-8")
    assert f"<h1>{sweep.path.name}</h1>" in page
    assert "4 of 4 runs are done" in page
    (pair,) = SweepResult.of(sweep).statistics()["comparisons"][:1]
    assert pair["difference_low"] is None
    verdict = page[page.index("</h1>") : page.index("<h2>")]
    for words in (f"{100 * pair['difference']:+.2f} points", "2 seeds: too few", "final accuracy"):
        assert words in verdict
    assert "second minus first" in page
    document = json.loads(fedmx("report", sweep.path, "--json", cwd=folder).out)
    assert len(document["runs"]) == 4
    assert document["comparisons"][0] == pair
    (run, *_) = sweep.path.glob("*-s5-*")
    assert "report it alone" in fedmx("report", sweep.path, run, cwd=folder).error_text


def test_arms_are_compared_under_each_condition_alone(tmp_path: Path) -> None:
    text = EXPERIMENT.replace('"gate:Gate", arm: first', "fedprox")
    axes = [axis_of("logic.preset", ["fedavg", "fedsgd"]), axis_of("rounds", [1, 2])]
    sweep = SweepFolder.create(
        tmp_path, "x", text, axes=axes, seeds=[1, 2], overrides=[], modules=tmp_path, target=None
    )
    with pytest.raises(FedmxError, match="no run has begun"):
        SweepResult.of(sweep).comparison()
    for run in sweep.runs[:7]:
        given = Experiment.parse(text, "x", run.overrides)
        made = RunFolder.create(sweep.path, run.name, given.to_yaml(), {"seed": run.seed})
        made.append_round({"round": 1, "accuracy": 0.5, "loss": 1.0})
        made.finish("done")
    found = SweepResult.of(sweep).comparison()
    assert [(one.name, other.name) for one, other in found.pairs] == [
        ("fedsgd, rounds 1", "fedavg, rounds 1"),
        ("fedsgd, rounds 2", "fedavg, rounds 2"),
    ]
    assert found.notes[-1] == "7 of 8 runs are done"


def test_each_cell_runs_with_each_seed(whole: tuple[CommandResult, Path]) -> None:
    result, folder = whole
    sweep = sweep_in(folder)
    assert result.code == 0, result
    lines = result.err.splitlines()
    assert lines[0] == f"sweep folder: {sweep.path.relative_to(folder)}"
    assert len(lines) == 5
    assert sorted(line.partition(":")[0] for line in lines[1:]) == [
        f"{arm}, seed {seed}" for arm in ("first", "second") for seed in (5, 6)
    ]
    assert lines[-1].endswith("4 of 4 runs done")
    for title in ("best accuracy, %: each cell", "rounds to 20 %: each pair of arms"):
        assert title in result.out
    files = [f"{sweep.path.relative_to(folder)}/{name}" for name in ("table.csv", "report.html")]
    assert result.out.splitlines()[-2:] == [f"table:  {files[0]}", f"report: {files[1]}"]
    assert sweep.report_path.is_file()
    facts = [RunFolder.open(path.parent).facts for path in sweep.path.glob("*/run.json")]
    assert sorted(fact["seed"] for fact in facts) == [5, 5, 6, 6]


def test_arms_with_the_same_seed_have_the_same_cohorts(whole: tuple[CommandResult, Path]) -> None:
    sweep = sweep_in(whole[1])
    cohorts: dict[int, set[str]] = {}
    for run in sweep.runs:
        path = sweep.run_path(run)
        assert path is not None
        chosen = [record["participants"] for record in RunFolder.open(path).rounds()]
        cohorts.setdefault(run.seed, set()).add(json.dumps(chosen))
    assert [len(one) for one in cohorts.values()] == [1, 1]
    assert cohorts[5] != cohorts[6]


def test_the_table_has_a_row_for_each_cell_and_seed(whole: tuple[CommandResult, Path]) -> None:
    sweep = sweep_in(whole[1])
    with sweep.table_path.open() as file:
        rows = list(csv.DictReader(file))
    keys = [(row["logic.hooks.0.arm"], row["seed"]) for row in rows]
    assert keys == [(arm, seed) for arm in ("first", "second") for seed in ("5", "6")]
    for row in rows:
        records = RunFolder.open(sweep.path / row["run"]).rounds()
        accuracies = [record["accuracy"] for record in records]
        assert float(row["best"]) == max(accuracies)
        assert float(row["accuracy"]) == accuracies[-1]
        reached = [one["round"] for one in records if one["accuracy"] >= 0.2]
        assert row["rounds_to_target"] == (str(reached[0]) if reached else "")
        sent = [one["up_bytes"] + one["down_bytes"] for one in records]
        assert row["bytes_to_target"] == (str(sum(sent[: reached[0]])) if reached else "")


def test_a_finished_sweep_only_shows_its_result(whole: tuple[CommandResult, Path]) -> None:
    result, folder = whole
    sweep = sweep_in(folder)
    before = written(sweep)
    again = fedmx("sweep", sweep.path, "--own-modules", cwd=folder)
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines()[:-2] == result.out.splitlines()[:-2]
    document = json.loads(fedmx("sweep", sweep.path, "--json", "--own-modules", cwd=folder).out)
    expected = SweepResult.of(sweep)
    assert document["table"] == expected.table()
    assert document["comparisons"] == expected.statistics()["comparisons"]
    assert written(sweep) == before


def test_seeds_that_have_begun_cannot_be_removed(whole: tuple[CommandResult, Path]) -> None:
    with pytest.raises(FedmxError, match="2 seeds"):
        extend(sweep_in(whole[1]), 1, None)


def test_the_result_is_a_table_and_a_frame(whole: tuple[CommandResult, Path]) -> None:
    result = SweepResult.read(sweep_in(whole[1]).path)
    assert (result.done, result.failed) == (True, [])
    frame = result.to_pandas()
    assert list(frame["best"]) == [row["best"] for row in result.table()]
    (pair,) = [row for row in result.statistics()["comparisons"] if row["metric"] == "best"]
    by_arm = frame.groupby("logic.hooks.0.arm")["best"].mean()
    assert (pair["arm"], pair["against"], pair["seeds"]) == ("second", "first", 2)
    assert pair["difference"] == pytest.approx(by_arm["second"] - by_arm["first"])


@pytest.mark.timeout(240)
def test_a_killed_sweep_resumes_to_the_same_models(
    tmp_path: Path, whole: tuple[CommandResult, Path]
) -> None:
    folder = place(tmp_path)
    (folder / "close").touch()
    words = ["sweep", "small.yaml", *VARY, "--seeds", "1", "--own-modules", "--at-once", "2"]
    arms = [folder / "waiting-first", folder / "waiting-second"]
    with started(*words, cwd=folder) as process:
        wait_until(lambda: all(arm.exists() for arm in arms), process)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    sweep = sweep_in(folder)
    begun = [sweep.run_path(run) for run in sweep.runs]
    assert None not in begun
    (folder / "close").unlink()
    for words in ([*VARY], ["--set", "rounds=3"]):
        result = fedmx("sweep", sweep.path, *words, "--own-modules", cwd=folder)
        assert (result.code, "settings are fixed" in result.err) == (2, True), result
    # Runs of added seeds start, and killed runs resume.
    result = fedmx("sweep", sweep.path, "--seeds", "2", "--own-modules", cwd=folder)
    assert result.code == 0, result
    sweep = SweepFolder.open(sweep.path)
    assert [sweep.run_path(run) for run in sweep.runs[:2]] == begun
    assert models(sweep) == models(sweep_in(whole[1]))


@pytest.mark.timeout(240)
def test_a_failed_run_is_named_and_can_run_again(tmp_path: Path) -> None:
    folder = place(tmp_path)
    (folder / "fail").touch()
    result = fedmx(*["sweep", "small.yaml", *VARY, "--seeds", "1", "--own-modules"], cwd=folder)
    sweep = sweep_in(folder)
    last = result.err.splitlines()[-1]
    assert (result.code, "Traceback" in result.err) == (2, False)
    command = f"fedmx sweep {sweep.path.relative_to(folder)} --own-modules"
    assert last.startswith("fedmx: 1 of 2 runs failed")
    assert last.endswith(f"run them again with: {command}")
    assert "1 of 2 runs are done" in sweep.report_path.read_text("utf-8")
    (named,) = [line for line in result.err.splitlines() if line.startswith("failed: ")]
    assert named.startswith("failed: second, seed 5: ")
    assert "on purpose" in sweep.log_path(sweep.runs[1]).read_text()
    assert [state.state for state in SweepResult.of(sweep).states] == ["done", "failed"]
    done = sweep.run_path(sweep.runs[0])
    before = {path: path.stat().st_mtime_ns for path in done.iterdir()}
    (folder / "fail").unlink()
    again = fedmx(*command.split()[1:], cwd=folder)
    assert again.code == 0, again
    assert SweepResult.of(sweep).done
    assert {path: path.stat().st_mtime_ns for path in done.iterdir()} == before


def test_a_cell_that_fails_at_once_is_tried_with_one_seed(tmp_path: Path) -> None:
    folder = place(tmp_path)
    words = ["sweep", "small.yaml", "--vary", "clients=5000,6000", "--seeds", "3"]
    words += ["--set", "compute.partition=dirichlet", "--own-modules", "--at-once", "1"]
    result = fedmx(*words, cwd=folder)
    assert result.code == 2
    states = [state.state for state in SweepResult.of(sweep_in(folder)).states]
    assert sorted(states) == ["failed"] * 2 + ["waiting"] * 4
    assert "2 of 6 runs failed; 4 other" in result.err
    assert not sweep_in(folder).report_path.exists(), "no run has begun"
    assert "5000 clients" in result.err


@pytest.mark.parametrize(
    ("vary", "said"),
    [("compute.partition.alpha=0.5,-4", "-4"), ("logic.hooks.0.amr=first,second", "setting 'amr'")],
)
def test_a_wrong_part_of_any_cell_is_refused_first(tmp_path: Path, vary: str, said: str) -> None:
    folder = place(tmp_path)
    words = ["sweep", "small.yaml", "--vary", vary, "--own-modules"]
    result = fedmx(*words, "--set", "compute.partition=dirichlet", cwd=folder)
    assert result.code == 2
    assert said in result.error_text
    assert not (folder / "runs").exists()


def test_ctrl_c_interrupts_all_runs(tmp_path: Path, interruptible: None) -> None:
    folder = place(tmp_path)
    (folder / "close").touch()
    words = ["sweep", "small.yaml", *VARY, "--seeds", "1", "--own-modules", "--at-once", "1"]
    with started(*words, cwd=folder) as process:
        wait_until(lambda: (folder / "waiting-first").exists(), process)
        process.send_signal(signal.SIGINT)
        result = ended(process)
    sweep = sweep_in(folder)
    assert result.code == 130
    assert result.err.splitlines()[-1] == (
        f"fedmx: interrupted; continue with: fedmx sweep {sweep.path.relative_to(folder)} "
        "--own-modules"
    )
    path = sweep.run_path(sweep.runs[0])
    assert path is not None
    assert RunFolder.open(path).status == "interrupted"
    assert sweep.process is None


def test_a_sweep_folder_runs_user_code_only_with_permission(
    whole: tuple[CommandResult, Path], tmp_path: Path
) -> None:
    text = EXPERIMENT.replace('[{name: "gate:Gate", arm: first}]', "[]")
    sweep = SweepFolder.create(
        tmp_path,
        "small",
        text,
        axes=[axis_of("logic.hooks", [["gate:Gate"], ["clip"]])],
        seeds=[1],
        overrides=[],
        modules=whole[1],
        target=None,
    )
    assert "gate:Gate" in fedmx("sweep", sweep.path, cwd=tmp_path).error_text
    with pytest.raises(FedmxError, match="gate:Gate"):
        package.sweep(sweep.path)
    assert not list(sweep.path.glob("*-2*"))


def test_an_experiment_object_can_be_swept(tmp_path: Path) -> None:
    experiment = Experiment(
        rounds=1,
        clients=3,
        compute={"model": "2nn", "data": "digits", "normalise": {"scale": 16}},
        run={"folder": str(tmp_path)},
    )
    vary = {"compute.train.learning_rate": [0.01, 0.1]}
    result = package.sweep(experiment, vary, seeds=1, target=0.05, at_once=2)
    assert result.done
    rows = result.table()
    assert [row["compute.train.learning_rate"] for row in rows] == [0.01, 0.1]
    assert package.sweep(result.folder.path).table() == rows
