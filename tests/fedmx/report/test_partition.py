"""The figure of a partition: numbers are in its cells where there is room for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from fedmx import Assembly, Experiment, RunFolder
from fedmx.assembly.label_counts import MOST_CLIENTS, LabelCounts
from fedmx.assembly.run_folder import new_run_folder
from fedmx.report.partition import table
from fedmx.report.partition_figure import _draw, partition_section
from fedmx.report.summary import RunSummary
from fedmx.report.svg import PAPER


def drawing(counts: np.ndarray) -> Figure:
    figure = Figure(figsize=(8, 5))
    _draw(figure, counts, range(len(counts)), PAPER)
    return figure


def numbers(clients: int, classes: int) -> list[str]:
    counts = np.zeros((clients, classes), np.int64)
    counts[0, 0], counts[-1, -1], counts[0, -1] = 5, 1234, 617
    drawn = drawing(counts)
    return sorted(text.get_text() for axes in drawn.axes for text in axes.texts)


@pytest.mark.parametrize(("clients", "classes"), [(2, 2), (12, 2), (2, 12), (12, 12)])
def test_a_small_figure_has_the_number_of_each_cell_that_is_not_empty(clients, classes) -> None:
    assert numbers(clients, classes) == ["1,234", "5", "617"]


@pytest.mark.parametrize(("clients", "classes"), [(13, 12), (12, 13), (13, 2), (2, 13), (40, 40)])
def test_a_large_figure_has_no_numbers(clients, classes) -> None:
    assert numbers(clients, classes) == []


def test_the_figure_says_what_is_on_its_axes() -> None:
    drawn = drawing(np.array([[1, 2], [3, 4]]))
    labels = {axes.get_xlabel() for axes in drawn.axes} | {axes.get_ylabel() for axes in drawn.axes}
    assert {"client", "label", "samples"} <= labels
    colours = {text.get_text(): text.get_color() for axes in drawn.axes for text in axes.texts}
    assert colours == {"1": "black", "2": "black", "3": "white", "4": "white"}


def test_a_wide_table_has_the_most_frequent_classes_of_each_client() -> None:
    counts = np.arange(22 * 14).reshape(22, 14) % 50
    counts[1] = 0
    console = Console(width=120, file=None, color_system=None)
    with console.capture() as captured:
        console.print(table(counts))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[2][:3] == ["0", str(counts[0].sum()), "13"]
    assert " ".join(lines[2][3:]).startswith("13: 13, 12: 12,")
    assert lines[3] == ["1", "0", "0"]
    assert [line[0] for line in lines[2:17]] == [str(client) for client in range(15)]
    assert lines[17] == ["…"]


def recorded(parent: Path, content: bytes) -> RunSummary:
    run = RunFolder.create(parent, "run", "rounds: 1\n", {}, {"labels.json": content})
    return RunSummary.of(run)


def test_the_report_has_the_samples_that_a_simulation_recorded(tmp_path: Path) -> None:
    wanted = np.array([[5, 0], [0, 7], [1, 1]])
    section = partition_section(recorded(tmp_path, LabelCounts(3, range(3), wanted).to_bytes()))
    assert section is not None
    assert "3 clients, 14 samples" in section
    some = LabelCounts(1001, [0, 500, 1000], wanted).to_bytes()
    assert "3 of 1,001 clients, evenly spaced" in str(partition_section(recorded(tmp_path, some)))


def test_the_figure_of_most_clients_takes_few_bytes(tmp_path: Path) -> None:
    counts = np.ones((MOST_CLIENTS, 62), np.int64)
    section = partition_section(
        recorded(tmp_path, LabelCounts(10**6, range(MOST_CLIENTS), counts).to_bytes())
    )
    assert len(str(section)) < 300_000


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"total": 1, "clients": [0], "counts": [["<b>"]]}']
    + [
        json.dumps({"total": 1, "clients": clients, "counts": counts}).encode()
        for clients, counts in [
            ([0], []),
            ([0], [[]]),
            ([0], [[-1]]),
            ([0], [[10**30]]),
            ([1], [[1]]),
            ([0], [[1]] * 101),
            ([0] * 101, [[1]] * 101),
        ]
    ],
)
def test_a_file_that_is_not_of_a_simulation_is_named(tmp_path: Path, content: bytes) -> None:
    section = str(partition_section(recorded(tmp_path, content)))
    assert "labels.json" in section
    assert "<svg" not in section
    assert "<b>" not in section


def test_a_run_without_labels_has_no_such_section(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run", "rounds: 1\n", {})
    assert partition_section(RunSummary.of(run)) is None


@pytest.mark.parametrize("clients", [3, MOST_CLIENTS + 50])
def test_a_simulation_alone_records_the_samples_of_its_clients_by_label(
    tmp_path: Path, clients: int
) -> None:
    given: dict[str, Any] = {"clients": clients, "rounds": 1, "run": {"folder": str(tmp_path)}}
    given["compute"] = {"model": "2nn", "engine": "numpy", "data": "digits"}
    assembly = Assembly(Experiment.from_dict(given))
    assert not new_run_folder(assembly, "server", None).labels_path.exists()
    run = new_run_folder(assembly, "simulation", None)
    found = LabelCounts.from_bytes(run.labels_path.read_bytes())
    assert found.total == clients
    assert len(found.clients) == min(clients, MOST_CLIENTS)
    assert (found.clients[0], found.clients[-1]) == (0, clients - 1)
    assert found.counts.shape == (len(found.clients), 10)
    if clients == len(found.clients):
        assert found.counts.sum() == 1442, "all training samples"
