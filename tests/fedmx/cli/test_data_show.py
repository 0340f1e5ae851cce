"""A partition as a table, a figure, and with the command ``fedmx data show``."""

from __future__ import annotations

import io
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedmx import FedmxError
from fedmx.assembly.label_counts import count
from fedmx.cli.datasets import files_with_progress
from fedmx.cli.main import main as command
from fedmx.report.partition import table
from fedmx.report.partition_figure import figure
from layers.compute.data.targets import Targets
from tests.fedmx.cli.gated_run import place
from tests.fedmx.command_line import fedmx

LABELS = np.array([0, 1, 1, 2, 2, 2])
COUNTS = count([LABELS[[0, 3]], LABELS[[1, 2, 4, 5]], LABELS[:0]], Targets("classes", 3))


def shown(counts: np.ndarray, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(counts, title="mine"))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(("clients", "left_out"), [(15, 0), (20, 0), (21, 1)])
def test_a_table_says_that_clients_are_left_out_only_if_they_are(
    clients: int, left_out: int
) -> None:
    assert sum("…" in line for line in shown(np.ones((clients, 2), np.int64))) == left_out


def dealt(labels: np.ndarray, clients: int) -> list[np.ndarray]:
    return [labels[client::clients] for client in range(clients)]


@given(labels=st.lists(st.integers(0, 4), max_size=50), clients=st.integers(1, 9))
def test_counts_have_all_samples(labels: list[int], clients: int) -> None:
    y = np.array(labels, dtype=np.int64)
    counts = count(dealt(y, clients), Targets("classes", 5))
    assert counts.shape == (clients, 5)
    assert counts.sum(axis=0).tolist() == np.bincount(y, minlength=5).tolist()
    assert counts.sum(axis=1).tolist() == [len(part) for part in dealt(y, clients)]


def test_a_table_of_ten_classes_with_four_digits_fits_into_80_columns() -> None:
    lines = shown(count([np.repeat(np.arange(10), 9999)], Targets("classes", 10)))
    assert max(map(len, lines)) <= 80
    assert ["0", "99,990", "10", *["9999"] * 10] in [line.split() for line in lines]


def test_of_many_classes_the_most_frequent_are_shown() -> None:
    lines = shown(count([np.concatenate([np.arange(62), np.full(3, 40)])], Targets("classes", 62)))
    assert any("40: 4, 0: 1, 1: 1, 2: 1, 3: 1, …" in line for line in lines)


@pytest.mark.parametrize("clients", [1, 300])
def test_a_figure_can_have_any_number_of_clients(tmp_path: Path, clients: int) -> None:
    y = np.arange(2000) % 10
    path = figure(count(dealt(y, clients), Targets("classes", 10)), tmp_path / "mine.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["mine.png"]


def test_a_figure_can_have_empty_clients_and_absent_classes(tmp_path: Path) -> None:
    drawn = figure(count([LABELS, LABELS[:0]], Targets("classes", 62)), tmp_path / "mine.pdf")
    assert drawn.read_bytes().startswith(b"%PDF")


def test_an_svg_has_labels_and_is_the_same_for_the_same_data(tmp_path: Path) -> None:
    drawn = [figure(COUNTS, tmp_path / name, title="A title") for name in ("a.svg", "b.svg")]
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    assert ElementTree.parse(drawn[0]).getroot().tag.endswith("svg")
    text = drawn[0].read_text()
    assert all(f"<!-- {label} -->" in text for label in ("A title", "client", "label", "samples"))


@pytest.mark.parametrize("names", [["a.gz"], ["a.gz", "b.gz"]])
def test_a_download_is_one_line_where_there_is_no_terminal(
    names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with files_with_progress() as files:
        for name in names:
            for done in (0, 1, 2):
                files.progress(name, done, 2)
    assert capsys.readouterr().err.splitlines() == [f"downloading {name}" for name in names]


def test_other_endings_and_missing_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    for name, said in (("mine.txt", r"such as mine\.png"), ("gone/mine.png", "No such file")):
        with pytest.raises(FedmxError, match=said) as caught:
            figure(COUNTS, tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mine.png", "mine.svg", "mine.pdf"])
def test_a_figure_replaces_only_a_figure_of_fedmx(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert figure(COUNTS, path).read_bytes() == figure(COUNTS, path).read_bytes()
    path.write_bytes(b"mine")
    with pytest.raises(FedmxError, match="did not write"):
        figure(COUNTS, path)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("name", "says"),
    [("own.png", "did not write"), ("own.txt", "such as own.png"), (".", "folder")],
)
def test_a_wrong_file_for_the_figure_is_refused_before_the_table(
    name: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.png").write_bytes(b"mine")
    assert command(["data", "show", "digits", "--clients", "2", "--figure", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "own.png").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "compute.partition=one-class"], "classes a client: 1 "),
        (["--partition", "one-class"], "classes a client: 1 "),
        (["--partition", "one-class", "--set", "compute.partition=iid"], "client: 6 to 10 "),
        (["--set", "clients=7"], "7 clients, "),
        (["--clients", "5", "--set", "clients=7"], "7 clients, "),
    ],
)
def test_what_is_set_for_a_data_set_is_shown(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["data", "show", "digits", *words]) == 0
    last = " ".join(capsys.readouterr().out.split()).rpartition("…")[2]
    assert says in f"{last} "


def test_how_a_partition_looks_is_shown_and_drawn(tmp_path: Path) -> None:
    folder = place(tmp_path)
    words = ("--set", "compute.partition=shards", "--figure", "labels.png")
    result = fedmx("data", "show", "small.yaml", "--own-modules", *words, cwd=folder)
    assert (result.code, result.err) == (0, "")
    assert "4 clients, 1,442 samples" in result.out
    assert result.out.splitlines()[-1] == "figure: labels.png"
    assert (folder / "labels.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, result.out.splitlines())) <= 80


def test_the_classes_of_a_table_are_shown_by_name(tmp_path: Path) -> None:
    rows = "".join(f"{row},{'lynx' if row % 2 else 'cat'}\n" for row in range(12))
    (tmp_path / "pets.csv").write_text("age,kind\n" + rows)
    experiment = "rounds: 1\nclients: 2\ncompute: {model: 2nn, data: {name: table, target: kind, "
    (tmp_path / "pets.yaml").write_text(experiment + "path: pets.csv}}\n")
    shown = fedmx("data", "show", "pets.yaml", cwd=tmp_path)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[-1] == "0: cat, 1: lynx"
