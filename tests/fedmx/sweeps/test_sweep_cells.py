"""Axes, cells and seeds of a sweep, and errors before anything runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import fedmx
from fedmx import Experiment, FedmxError, RunFolder, simulate, sweep
from fedmx.assembly.assembly import Assembly
from fedmx.cli.sweep import tell_failures
from fedmx.listing.rows import listed
from fedmx.run import RunError
from fedmx.run.durable import write_document
from fedmx.sweeps.cells import axis_of, cells_of, check_axes, read_axis, runs_of
from fedmx.sweeps.folder import FILE, SweepFolder, state_of
from fedmx.sweeps.result import SweepResult
from fedmx.sweeps.sweep import _fit_beside, begin, extend, go_on
from layers.compute.bits import cores

TEXT = """
name: small
seed: 3
rounds: 1
clients: 4
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  partition: {name: dirichlet, alpha: 0.5}
logic: {selector: {name: uniform, fraction: 0.5}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a.b=fedavg,fedprox", ["fedavg", "fedprox"]),
        ("a=0.1, 1e-3", ["0.1", "0.001"]),
        ("a={name: fedprox, mu: 0.1},fedavg", ["fedprox mu=0.1", "fedavg"]),
        ("a=[1, 2],[3]", ["[1, 2]", "[3]"]),
        ("a=own:Model,gluon:resnet18_v1", ["own:Model", "gluon:resnet18_v1"]),
        ("a=null,true", ["null", "true"]),
    ],
)
def test_the_values_of_an_axis_are_yaml(text: str, labels: list[str]) -> None:
    axis = read_axis(text)
    assert [axis.label(value) for value in axis.values] == labels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("logic.preset", "PATH=VALUE,VALUE"),
        ("=1,2", "PATH=VALUE,VALUE"),
        ("a=1", "two values"),
        ("a=1,1", "'1'"),
        ("a=1,[", "YAML"),
        ("seed=1,2", "--seeds N"),
        ("executor=serial,ray", "--executor"),
        ("run.folder=a,b", "run.folder"),
    ],
)
def test_invalid_axes_are_refused(text: str, says: str) -> None:
    with pytest.raises(FedmxError, match="--vary") as error:
        read_axis(text)
    assert says in str(error.value)


def test_overlapping_axes_are_refused() -> None:
    whole, part = axis_of("logic.preset", ["fedavg", "fedprox"]), axis_of("logic.preset.mu", [1, 2])
    for axes in ([whole, part], [part, whole]):
        with pytest.raises(FedmxError, match=r"logic\.preset\.mu: .*logic\.preset;"):
            check_axes(axes)
    with pytest.raises(FedmxError, match="twice"):
        check_axes([whole, whole])
    with pytest.raises(FedmxError, match="--vary"):
        check_axes([])


@pytest.mark.parametrize("override", ["logic.preset.mu=0.5", "logic.preset=scaffold"])
def test_overrides_of_varied_settings_are_refused(file: Path, override: str) -> None:
    vary = {"logic.preset": ["fedavg", "fedprox"]}
    with pytest.raises(FedmxError, match=r"--set logic\.preset.*: logic\.preset varies"):
        fedmx.sweep(file, vary, folder=file.parent / "runs", overrides=[override])
    assert not (file.parent / "runs").exists()


def test_all_cells_have_the_same_seeds_and_each_run_a_unique_name() -> None:
    cells = cells_of([axis_of("a", ["x y", "x/y"]), axis_of("b", [1, 2, 3])])
    assert [str(cell) for cell in cells[:4]] == ["x y, 1", "x y, 2", "x y, 3", "x/y, 1"]
    runs = runs_of(cells, [4, 5])
    assert [run.seed for run in runs] == [4] * 6 + [5] * 6
    assert len({run.name for run in runs}) == 12
    assert all(run.overrides[-1] == f"seed={run.seed}" for run in runs)


@pytest.mark.parametrize(
    ("vary", "says"),
    [
        ({"rounds": [1, 1.0]}, "same experiment"),
        ({"logic.preset": ["fedavg", "fedpox"]}, "'fedprox'"),
        ({"compute.modle": ["2nn", "lenet5"]}, "--vary compute.modle"),
        ({"clients": [4, "many"]}, "--vary clients"),
        ({"rounds.first": [1, 2]}, "--vary rounds.first"),
        ({"logic.preset": "fedavg"}, "list of values"),
    ],
)
def test_an_invalid_cell_creates_no_folder(file: Path, vary: dict, says: str) -> None:
    with pytest.raises(FedmxError) as error:
        fedmx.sweep(file, vary, folder=file.parent / "runs")
    assert says in str(error.value)
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("given", "seeds", "target"),
    [
        ({}, range(3, 9), 0.8),
        ({"seeds": 1, "target": 0.25}, [3], 0.25),
        ({"seeds": 2, "overrides": ["seed=7", "stop.accuracy=null"]}, [7, 8], None),
    ],
    ids=["six seeds", "as told", "no target"],
)
def test_a_sweep_has_the_seeds_from_its_own_on_and_the_lowest_target(
    tmp_path: Path, given: dict, seeds: Sequence[int], target: float | None
) -> None:
    text = f"{TEXT}run: {{folder: {tmp_path / 'runs'}}}\n"
    overrides = given.get("overrides", [])
    axes = [axis_of("rounds", [1, 2])] if overrides else [axis_of("stop.accuracy", [0.9, 0.8])]
    defaults = {"seeds": None, "target": None, "overrides": [], "modules": [], "beside": tmp_path}
    made = begin(text, "small.yaml", axes, **{**defaults, **given})
    assert made.path.parent == tmp_path / "runs"
    assert made.path.name.startswith("small-sweep-2")
    assert made.experiment_path.read_text() == text
    found = SweepFolder.open(made.path).manifest
    assert (found.axes, found.seeds, found.target) == (tuple(axes), tuple(seeds), target)
    assert (found.overrides, found.modules) == (tuple(overrides), str(tmp_path))


@pytest.mark.parametrize(
    ("set_", "executor", "beside"),
    [
        ([], None, cores()),
        ([], "serial", cores()),
        ([], "processes", 1),
        (["executor=processes"], None, 1),
        (["executor=processes"], "serial", 1),
    ],
)
def test_runs_with_workers_of_their_own_run_one_after_another(
    set_: list[str], executor: str | None, beside: int
) -> None:
    assert _fit_beside(Experiment.parse(TEXT, overrides=set_), executor) == beside


def sweep_of(parent: Path, axes: dict[str, list], seeds: list[int]) -> SweepFolder:
    return SweepFolder.create(
        *(parent, "small", TEXT),
        axes=[axis_of(*axis) for axis in axes.items()],
        **{"seeds": seeds, "overrides": ["rounds=2"], "modules": parent, "target": None},
    )


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return sweep_of(tmp_path, {"clients": [4, 5]}, [3, 4])


FAILED, STOPPED = (
    json.dumps({"event": "error", "fields": {"code": code}, "text": text})
    for code, text in ((2, "no data"), (130, "interrupted"))
)


@pytest.mark.parametrize(
    ("log", "begun", "state", "reason"),
    [
        (None, None, "waiting", ""),
        (FAILED, None, "failed", "no data"),
        (STOPPED, None, "waiting", ""),
        (None, "interrupted", "interrupted", "its process ended before the run did"),
        (FAILED, "interrupted", "failed", "no data"),
        (STOPPED, "interrupted", "interrupted", "its process ended before the run did"),
        (FAILED[:-9], "interrupted", "interrupted", "its process ended before the run did"),
        ("[1]", "interrupted", "interrupted", "its process ended before the run did"),
        (f'{FAILED}\n{{"event": "round"}}', "interrupted", "interrupted", "its process ended"),
        (FAILED, "running", "running", ""),
        (None, "done", "done", "all 2 rounds were run"),
        (FAILED, "done", "done", "all 2 rounds were run"),
        (None, "damaged", "failed", "cannot read it"),
    ],
)
def test_the_state_of_a_run_is_that_of_its_folder_and_of_the_end_of_its_log(
    folder: SweepFolder, log: str | None, begun: str | None, state: str, reason: str
) -> None:
    run = folder.runs[2]
    if log is not None:
        folder.log_path(run).write_text(f"a library says\n{log}\n")
    with contextlib.ExitStack() as stack:
        if begun is not None:
            text = Experiment.parse(TEXT, overrides=run.overrides).to_yaml()
            made = RunFolder.create(folder.path, run.name, text, {})
            made.append_round({"round": 1, "accuracy": 0.5, "loss": 1.0})
            if begun == "running":
                stack.enter_context(made.lock())
            elif begun == "done":
                made.finish("done", "all 2 rounds were run")
            elif begun == "damaged":
                (made.path / "run.json").unlink()
                (made.path / "run.json").mkdir()
        found = state_of(folder, run)
    path = None if begun is None else made.path
    assert (found.run, found.state, found.folder) == (run, state, path)
    assert reason in found.reason
    assert bool(reason) == bool(found.reason)
    assert found.rounds == (0 if begun in (None, "damaged") else 1)
    assert found.failed_at_once == (state == "failed" and begun is None)


def test_seeds_that_have_not_begun_can_be_removed_and_not_be_too_many(folder: SweepFolder) -> None:
    again = SweepFolder.open(folder.path)
    assert (again.manifest, again.runs) == (folder.manifest, folder.runs)
    again.check_experiment()
    with pytest.raises(FedmxError, match="100,000"):
        extend(folder, 100_000, None)
    assert SweepFolder.open(folder.path).manifest == again.manifest
    assert len(folder.runs) == 4
    extend(folder, 1_000, None)
    extend(folder, 1, None)
    assert SweepFolder.open(folder.path).manifest.seeds == (3,)


def test_an_unreadable_sweep_is_listed_as_damaged(folder: SweepFolder) -> None:
    folder.manifest = replace(folder.manifest, seeds=tuple(range(100_000)))
    folder.save()
    (found,) = listed(folder.path.parent)
    assert found.row["state"] == "damaged"
    assert "100,000" in found.row["reason"]


def test_unfinished_runs_are_an_error_with_the_command_to_resume(folder: SweepFolder) -> None:
    with pytest.raises(FedmxError, match=r"4 of 4\b.*fedmx sweep "):
        tell_failures(SweepResult.of(folder))


def test_varied_settings_keep_their_columns_and_types(tmp_path: Path) -> None:
    axes = {"logic.preset": ["fedavg", "fedprox"], "rounds": [2, 5]}
    result = SweepResult.of(sweep_of(tmp_path, axes, [3]))
    assert [row["rounds"] for row in result.table()] == [2, 5, 2, 5]
    assert {row["rounds_done"] for row in result.table()} == {0}
    found = result.statistics()
    assert {row["rounds"] for row in found["cells"]} == {2, 5}
    pairs = [(row["rounds"], row["arm"], row["against"]) for row in found["comparisons"]]
    assert pairs == [(2, "fedprox", "fedavg"), (5, "fedprox", "fedavg")] * len(result.metrics)


def test_a_changed_experiment_or_damaged_manifest_is_refused(folder: SweepFolder) -> None:
    folder.experiment_path.write_text(TEXT.replace("seed: 3", "seed: 4"))
    with pytest.raises(RunError, match=r"experiment\.yaml: "):
        folder.check_experiment()
    manifest = folder.path / "sweep.json"
    manifest.write_text(manifest.read_text().replace('"clients"', '"rounds"'))
    with pytest.raises(RunError, match="checksum"):
        SweepFolder.open(folder.path)


def opened(of: SweepFolder) -> SweepFolder:
    return SweepFolder.open(of.path)


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda of: sweep(of.path, {"rounds": [1, 2]}), "vary"),
        (lambda of: sweep(of.path, overrides=["rounds=1"]), "vary"),
        (lambda of: go_on(of, at_once=0), "at_once"),
        (lambda of: extend(of, 0, None), "seeds"),
        (lambda of: extend(of, None, 61), "61"),
        (lambda of: extend(of, None, 1.01), "1.01"),
        (lambda of: (of.table_path.mkdir(), SweepResult.of(of).save_table()), "table.csv"),
        (lambda of: SweepFolder.open(of.path.parent), "sweep.json"),
        (lambda of: (of.experiment_path.unlink(), of.check_experiment()), "experiment.yaml"),
        (lambda of: (of.experiment_path.write_bytes(b"\xff"), of.check_experiment()), "experiment"),
        (lambda of: (write_document(of.path / FILE, {"format": 99}), opened(of)), "99"),
        (lambda of: ((of.path / FILE).write_text('{"a'), opened(of)), "sweep.json:1"),
    ],
)
def test_what_a_sweep_folder_does_not_allow_is_named(
    act: Callable[[SweepFolder], object], named: str, folder: SweepFolder
) -> None:
    with pytest.raises(FedmxError) as caught:
        act(folder)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_arms_of_a_seed_share_partition_cohort_and_initial_weights() -> None:
    def begin(*overrides: str) -> tuple[list[list[int]], bytes, tuple[int, ...]]:
        experiment = Experiment.parse(TEXT, overrides=["compute.train.steps=1", *overrides])
        assembly = Assembly(experiment)
        parts = [assembly.labels_of(client).tolist() for client in range(experiment.clients)]
        with simulate(assembly) as server:
            return parts, server.weights.tobytes(), next(iter(server)).participants

    axis = axis_of("logic.preset", ["fedavg", "fedprox", "scaffold"])
    arms = [begin(*run.overrides) for run in runs_of(cells_of([axis]), [7])]
    assert arms[0] == arms[1] == arms[2]
    assert begin(axis.override("fedavg"), "seed=8") != arms[0]
