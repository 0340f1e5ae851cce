"""``fedmx runs`` lists runs, and ``--json`` gives what other commands print as one document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmx import Experiment, recorded, simulate
from fedmx.cli.runs import age, rows
from fedmx.run import RunFolder, gather_facts
from fedmx.sweeps.cells import axis_of
from fedmx.sweeps.folder import SweepFolder
from tests.fedmx.command_line import fedmx

TREE = {
    "name": "small",
    "rounds": 2,
    "clients": 3,
    "compute": {
        "model": "2nn",
        "data": "digits",
        "normalise": {"scale": 16},
        "train": {"steps": 1, "batch_size": 20},
    },
}


def record(parent: Path, most: int | None = None) -> RunFolder:
    """Run the experiment; leave it after so many rounds."""
    experiment = Experiment.from_dict(TREE)
    facts = gather_facts(seed=1, mode="simulation", digest=experiment.digest(), engine="mxnet")
    folder = RunFolder.create(parent, experiment.name, experiment.to_yaml(), facts)
    for round in (rounds := recorded(simulate(experiment), folder)):
        if round.round == most:
            rounds.close()
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is done, one that was stopped, a damaged one, and a sweep."""
    folder = tmp_path_factory.mktemp("runs")
    record(folder)
    record(folder, most=1)
    (record(folder, most=1).path / "experiment.yaml").unlink()
    SweepFolder.create(
        folder,
        "small",
        Experiment.from_dict(TREE).to_yaml(),
        axes=[axis_of("rounds", [1, 2])],
        seeds=[1, 2],
        overrides=[],
        modules=folder,
        target=None,
    )
    (folder / "notes").mkdir()
    (folder / "notes.txt").touch()
    return folder


def test_each_run_and_each_sweep_has_a_row(runs: Path) -> None:
    done, stopped, damaged, sweep = rows(runs)
    assert [one["state"] for one in (done, stopped, damaged)] == ["done", "stopped", "damaged"]
    assert (sweep["kind"], sweep["state"]) == ("sweep", "interrupted")
    records = RunFolder.open(done["run"]).rounds()
    assert done["best_accuracy"] == max(record["accuracy"] for record in records)
    assert done["accuracy"] == records[-1]["accuracy"]
    assert (done["experiment"], done["rounds_done"], done["rounds"]) == ("small", 2, 2)
    assert (stopped["rounds_done"], stopped["rounds"]) == (1, 2)
    assert "experiment.yaml" in damaged["reason"]
    assert (sweep["runs"], sweep["runs_done"]) == (4, 0)
    assert len({tuple(row) for row in (done, stopped, damaged, sweep)}) == 1


def test_a_list_of_runs_is_a_line_each_or_one_document(runs: Path) -> None:
    heading, *lines = fedmx("runs", runs, cwd=runs).out.splitlines()
    assert heading.split() == ["run", "state", "round", "best", "age"]
    assert len(lines) == 4
    for row in rows(runs):
        (line,) = [one for one in lines if one.startswith(f"{Path(row['run']).name} ")]
        assert f" {row['state']} " in line
    document = json.loads(fedmx("runs", runs, "--json", cwd=runs).out)
    assert sorted(one["run"] for one in document) == sorted(row["run"] for row in rows(runs))


@pytest.mark.parametrize("columns", [80, 140])
def test_runs_of_an_experiment_show_the_settings_that_differ(columns: int, tmp_path: Path) -> None:
    presets = ({"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 0.2}, {"name": "fedavg"})
    for seed, preset in enumerate(presets, start=1):
        given = Experiment.from_dict({**TREE, "seed": seed, "logic": {"preset": preset}})
        RunFolder.create(tmp_path, "small", given.to_yaml(), {})
    other = Experiment.from_dict({**TREE, "name": "other", "rounds": 7})
    RunFolder.create(tmp_path, "other", other.to_yaml(), {})
    result = fedmx("runs", tmp_path, cwd=tmp_path, COLUMNS=str(columns))
    for words in ("fedprox, mu 0.1, seed 1", "fedprox, mu 0.2, seed 2", "fedavg, seed 3"):
        assert all(word in result.out for word in words.split())
    assert "7" not in next(one for one in result.out.splitlines() if "other" in one).split()
    assert max(map(len, result.out.splitlines())) <= columns
    assert ("settings that differ" in result.out.splitlines()[0]) == (columns > 100)
    document = json.loads(fedmx("runs", tmp_path, "--json", cwd=tmp_path).out)
    found = {one["experiment"]: one["settings"] for one in document}
    assert (found["other"], found["small"]) == ({}, {"seed": "3", "logic.preset": "fedavg"})


def test_a_folder_without_runs_and_one_that_is_not_there_are_told_apart(tmp_path: Path) -> None:
    empty = fedmx("runs", tmp_path, cwd=tmp_path)
    assert (empty.code, empty.out, empty.err) == (0, "", f"{tmp_path}: no runs\n")
    assert json.loads(fedmx("runs", tmp_path, "--json", cwd=tmp_path).out) == []
    assert fedmx("runs", cwd=tmp_path).error_text.startswith("runs: there is no such folder")


def test_an_age_has_one_unit() -> None:
    seconds = (0, 59, 60, 3599, 3600, 86399, 86400, 2 * 86400 - 1, 1200 * 86400)
    ages = "0 s, 59 s, 1 min, 59 min, 1 h, 23 h, 1 d, 1 d, 1,200 d"
    assert ", ".join(map(age, seconds)) == ages


def test_the_figures_of_a_report_are_one_document(runs: Path, tmp_path: Path) -> None:
    done = rows(runs)[0]
    words = ["report", done["run"], "-o", "page.html", "--target", "0.01", "--json"]
    document = json.loads(fedmx(*words, cwd=tmp_path).out)
    (run,) = document["runs"]
    records = RunFolder.open(done["run"]).rounds()
    assert document["report"] == "page.html"
    assert (tmp_path / "page.html").is_file()
    assert [one["accuracy"] for one in run["points"]] == [one["accuracy"] for one in records]
    assert (run["state"], run["best_accuracy"]) == ("done", done["best_accuracy"])
    assert (run["target"], run["rounds_to_target"]) == (0.01, 1)
    assert run["up_bytes"] == sum(one["up_bytes"] for one in records)


@pytest.mark.needs_mxnet
def test_the_result_of_a_run_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(json.dumps(TREE))
    document = json.loads(fedmx("run", "small.yaml", "--json", cwd=tmp_path).out)
    folder = RunFolder.open(tmp_path / document["run"])
    assert (document["state"], document["rounds_done"]) == (folder.status, 2)
    assert document["accuracy"] == folder.rounds()[-1]["accuracy"]
    assert (tmp_path / document["model"]).is_file()
    assert (tmp_path / document["report"]).is_file()


def test_lists_and_explanations_are_documents(tmp_path: Path) -> None:
    hooks = json.loads(fedmx("list", "hooks", "--json", cwd=tmp_path).out)
    assert list(hooks) == ["hooks"]
    keys = {"about", "settings", "required", "open", "schemas", "parts", "engines"}
    assert set(hooks["hooks"]["fedprox"]) == keys
    explained = json.loads(fedmx("explain", "fedprox", "--json", cwd=tmp_path).out)
    assert set(explained["kinds"]) == {"presets", "hooks"}
    assert explained["text"] + "\n" == fedmx("explain", "fedprox", cwd=tmp_path).out
    (tmp_path / "small.yaml").write_text(json.dumps(TREE))
    code = json.loads(fedmx("explain", "small.yaml", "--json", cwd=tmp_path).out)["code"]
    assert {one["owner"] for one in code} == {"fedmx"}


def test_what_is_known_of_data_is_one_document(tmp_path: Path) -> None:
    words = ["data", "show", "digits", "--clients", "3", "--json"]
    shown = json.loads(fedmx(*words, cwd=tmp_path).out)
    assert [len(counts) for counts in shown["samples"]] == [10] * 3
    assert sum(map(sum, shown["samples"])) == 1442
    places = json.loads(fedmx("data", "list", "--json", cwd=tmp_path).out)
    assert places["digits"].startswith("here")
    got = json.loads(fedmx("data", "get", "digits", "--json", cwd=tmp_path).out)
    sizes = {"train": 1442, "test": 355, "shape": [1, 28, 28], "classes": 10}
    assert got == {"data": "digits", **sizes}


def test_a_run_is_no_folder_of_runs(runs: Path) -> None:
    (one, *_) = sorted(path.parent for path in runs.glob("*/run.json"))
    answer = fedmx("runs", one, cwd=runs)
    assert answer.code == 2
    assert answer.err == f"fedmx: {one}: is a run itself; give the folder that it is in: {runs}\n"
