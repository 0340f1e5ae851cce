"""A report shows what was measured by class, and the spread of the first metric over clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import RunFolder
from fedmx.report.by_class import classes_section
from fedmx.report.html import Html
from fedmx.report.over_clients import over_clients_section
from fedmx.report.summary import RunSummary

MATRIX = [[8, 2, 0], [0, 0, 0], [1, 0, 9]]
BY_CLASS = {"per_class_accuracy": [0.8, float("nan"), 0.9]}
METRICS = {
    "rmse": {"key": "rmse", "label": "Root mean squared error", "unit": "number"},
    "accuracy": {"key": "accuracy", "label": "Accuracy", "unit": "share"},
}


def run_of(parent: Path, metric: str = "accuracy", **last: Any) -> RunFolder:
    run = RunFolder.create(parent, "run", "rounds: 9\n", {"metrics": [METRICS[metric]]})
    for number, more in ((1, {"per_class_accuracy": [0.0, None, 0.0]}), (2, last), (3, {})):
        run.append_round({"round": number, metric: 0.5, "up_bytes": 1, "down_bytes": 1, **more})
    return run


def evaluated(run: RunFolder, round: int, values: list[float], model: str = "global") -> None:
    (key,) = (one["key"] for one in run.facts["metrics"])
    run.append_evaluations(
        {"round": round, "client": client, "samples": 5, "model": model, key: value}
        for client, value in enumerate(values)
    )


def texts(section: Html | None) -> str:
    assert section is not None
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"href=\"[^\"]*\"", "", section)).split())


@pytest.mark.parametrize(
    ("last", "shown", "left_out"),
    [
        (BY_CLASS, ["after round 2", "0 – 80.00 %", "1 – –", "2 – 90.00 %"], "prediction"),
        (
            {**BY_CLASS, "confusion_matrix": MATRIX},
            ["0 10 80.00 %", "1 0 –", "class 0 as 1: 2 samples, 20.00 % of the class"],
            "as 3",
        ),
        ({"confusion_matrix": MATRIX}, ["prediction, after round 2", "0 10 0.00 %"], "10 80.00 %"),
    ],
)
def test_the_last_record_by_class_is_shown(
    tmp_path: Path, last: dict[str, Any], shown: list[str], left_out: str
) -> None:
    section = classes_section(RunSummary.of(run_of(tmp_path, **last)), None)
    assert [one for one in shown if one not in texts(section)] == []
    assert left_out not in texts(section)


def test_a_matrix_of_many_classes_has_no_numbers_and_their_table_is_folded(tmp_path: Path) -> None:
    size = 100
    many = {"confusion_matrix": np.eye(size, dtype=int).tolist(), "per_class_accuracy": [1] * size}
    section = classes_section(RunSummary.of(run_of(tmp_path, **many)), "a run")
    assert "100 classes" in texts(section)
    assert section is not None
    assert "open" not in section.partition("<details")[2].partition(">")[0]
    assert len(section) < 400_000


@pytest.mark.parametrize(
    ("metric", "median", "band"),
    [("accuracy", "50.00 %", "10.00 % to 90.00 %"), ("rmse", "0.5", "0.1 to 0.9")],
)
def test_the_quantiles_over_clients_are_drawn_by_round(
    tmp_path: Path, metric: str, median: str, band: str
) -> None:
    run = run_of(tmp_path, metric)
    evaluated(run, 1, [0.9, 0.9])
    evaluated(run, 2, [n / 10 for n in range(11)])
    evaluated(run, 2, [0.25] * 3, "personal")
    evaluated(run, 3, [0.5])  # of one client there is no spread
    section = over_clients_section(RunSummary.of(run), None)
    said = texts(section)
    assert f"After round 2, the global model has a median of {median} over 11 clients" in said
    assert band in said
    assert "the personal model has a median of 25.00 %" in said or metric == "rmse"
    figures = re.findall(r"<figcaption><span>([^<]*)", str(section))
    label = METRICS[metric]["label"]
    assert figures == [
        f"{label} of the global model over clients, by round",
        f"{label} of the global model over clients, after round 2",
        f"{label} of the personal model over clients, after round 2",
    ]
    assert f"25 % of clients up to {'25.00 %' if metric == 'accuracy' else '0.25'}" in said


def test_without_such_records_there_is_no_section(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    evaluated(run, 1, [float("nan"), 0.5])
    assert over_clients_section(RunSummary.of(run), None) is None
    run = RunFolder.create(tmp_path, "other", "rounds: 9\n", {})
    run.append_round({"round": 1, "accuracy": 0.5})
    assert classes_section(RunSummary.of(run), None) is None
