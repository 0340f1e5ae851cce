"""Commands speak of versions and of updates in a second where rounds do not wait."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedmx import RunFolder
from tests.fedmx.command_line import ROOT, fedmx

EXPERIMENT = """
name: asynchronous
seed: 3
rounds: 6
clients: 12
compute:
  model: logistic
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 20, learning_rate: 0.1}
logic:
  preset: {name: fedbuff, concurrency: 6, buffer: 3}
clock: {devices: lognormal}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "asynchronous.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


def test_a_run_is_shown_in_versions(file: Path, tmp_path: Path) -> None:
    result = fedmx("run", file, "--set", "run.folder=runs", cwd=tmp_path)
    assert result.code == 0, result
    (path,) = (tmp_path / "runs").iterdir()
    records = RunFolder.open(path).rounds()
    for record, line in zip(records, result.err.splitlines()[1:], strict=True):
        mean = sum(record["staleness"]) / len(record["staleness"])
        assert f"version {record['round']}/6" in line
        assert f"  staleness {mean:.1f}  {record['in_flight']} in flight  " in line
        assert re.search(r"  [\d.,]+ updates/s  ", line), line
        assert "did not count" not in line
    shown = fedmx("status", path, cwd=tmp_path).out
    assert re.search(r"^versions: +6 of 6 done$", shown, re.MULTILINE)
    assert re.search(rf"^in flight: +{records[-1]['in_flight']} tasks, ", shown, re.MULTILINE)
    status = json.loads(fedmx("status", path, "--json", cwd=tmp_path).out)
    assert status["updates_per_s"] == pytest.approx(18 / sum(one["seconds"] for one in records))
    assert "6/6 versions" in fedmx("runs", tmp_path / "runs", cwd=tmp_path).out


@pytest.mark.needs_mxnet
def test_an_estimate_counts_updates_and_clients_at_work(file: Path, tmp_path: Path) -> None:
    shown = fedmx("run", file, "--dry-run", cwd=tmp_path).out
    assert re.search(r"^versions: 6, .*\b3 updates, .*\b6 clients\b", shown, re.MULTILINE)
    assert re.search(r"\b[\d.,]+ updates/s", shown)
    found = json.loads(fedmx("run", file, "--dry-run", "--json", cwd=tmp_path).out)
    assert (found["cohort"], found["concurrency"]) == (3, 6)
    each = found["task_bytes"] + found["update_bytes"]
    assert (found["round_bytes"], found["bytes"]) == (3 * each, 18 * each)
    waiting = ("--set", "logic.preset={name: fedavg, count: 4}")
    found = json.loads(fedmx("run", file, "--dry-run", "--json", *waiting, cwd=tmp_path).out)
    assert (found["cohort"], found["concurrency"]) == (4, None)


def test_the_example_makes_versions_from_any_folder(tmp_path: Path) -> None:
    file = ROOT / "examples" / "asynchronous.yaml"
    words = ["run", file, "--set", "run.folder=runs", "--set", "rounds=3"]
    result = fedmx(*words, cwd=tmp_path, page=True)
    assert result.code == 0, result
    (path,) = (tmp_path / "runs").iterdir()
    records = RunFolder.open(path).rounds()
    assert [len(one["staleness"]) for one in records] == [5, 5, 5]
    assert max(max(one["staleness"]) for one in records) > 0
    assert all(one["virtual"] and 0 < one["in_flight"] <= 10 for one in records)
    page = (path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Timeline of versions" in page
    assert "<h2>Staleness</h2>" in page
