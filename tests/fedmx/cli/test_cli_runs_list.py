"""``fedmx runs`` lists runs, and ``--json`` gives what other commands print as one document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmx import Experiment
from fedmx.cli.runs import age
from fedmx.run import RunFolder
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import record

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


def test_an_age_has_one_unit() -> None:
    seconds = (0, 59, 60, 3599, 3600, 86399, 86400, 2 * 86400 - 1, 1200 * 86400)
    ages = "0 s, 59 s, 1 min, 59 min, 1 h, 23 h, 1 d, 1 d, 1,200 d"
    assert ", ".join(map(age, seconds)) == ages


def test_the_figures_of_a_report_are_one_document(tmp_path: Path) -> None:
    done = record(Experiment.from_dict(TREE), tmp_path)
    words = ["report", done.path, "-o", "page.html", "--target", "0.01", "--json"]
    document = json.loads(fedmx(*words, cwd=tmp_path).out)
    (run,) = document["runs"]
    records = done.rounds()
    assert document["report"] == "page.html"
    assert (tmp_path / "page.html").is_file()
    assert [one["accuracy"] for one in run["points"]] == [one["accuracy"] for one in records]
    assert (run["state"], run["best"]) == ("done", max(run["accuracy"] for run in records))
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
