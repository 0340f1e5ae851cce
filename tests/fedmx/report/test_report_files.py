"""Runs as files for papers: figures with their fonts, CSV, LaTeX; no file is lost."""

from __future__ import annotations

import base64
import csv
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from fedmx import FedmxError, RunFolder
from fedmx.cli.main import app
from fedmx.report import Comparison, write_report
from fedmx.report.paper import escape, latex_table
from tests.fedmx.report.test_report_groups import make

COLUMN_POINTS = 3.3 * 72


@pytest.fixture
def six(tmp_path: Path) -> list[RunFolder]:
    return [
        make(tmp_path / "runs", preset, seed, accuracies=(0.1 * seed, 0.2 * seed))
        for preset in ("fedavg", "fedprox")
        for seed in (1, 2, 3)
    ]


def test_figures_are_one_column_wide_with_their_fonts(six: list[RunFolder], tmp_path: Path) -> None:
    written = Comparison.of(six, 0.5).write_figures(tmp_path / "figures")
    assert {path.name for path in written} == {
        *(
            f"{measure}-{axis}.{ending}"
            for measure in ("accuracy", "loss")
            for axis in ("rounds", "bytes", "time")
            for ending in ("pdf", "svg")
        ),
        "curves.csv",
    }
    pdf = (tmp_path / "figures" / "accuracy-rounds.pdf").read_bytes()
    assert b"/FontFile2" in pdf, "the font is in the file, as TrueType"
    assert b"/Type3" not in pdf
    box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ", pdf)
    assert box is not None
    assert float(box[1]) == pytest.approx(COLUMN_POINTS, abs=1)
    svg = ElementTree.parse(tmp_path / "figures" / "accuracy-rounds.svg").getroot()
    assert float(svg.attrib["width"].removesuffix("pt")) == pytest.approx(COLUMN_POINTS, abs=1)
    assert not svg.findall(".//{http://www.w3.org/2000/svg}text"), "letters are shapes"


def test_the_same_runs_give_the_same_files(six: list[RunFolder], tmp_path: Path) -> None:
    compared = Comparison.of(six)
    first = {path: path.read_bytes() for path in compared.write_figures(tmp_path / "figures")}
    assert {p: p.read_bytes() for p in compared.write_figures(tmp_path / "figures")} == first


def test_a_number_of_rounds_that_differs_keeps_its_column(tmp_path: Path) -> None:
    rows = Comparison.of([make(tmp_path / str(n), rounds=n) for n in (4, 9)]).table()
    assert [(row["rounds"], row["rounds_run"]) for row in rows] == [("4", 2), ("9", 2)]


def test_a_paper_has_all_digits_of_a_large_number_of_rounds(six: list[RunFolder]) -> None:
    (group, *_) = Comparison.of(six).groups
    (point, *_) = group.runs[0].points
    late = replace(point, round=1234, accuracy=0.9)
    run = replace(group.runs[0], points=[late])
    assert " & 1234 & " in latex_table([replace(group, runs=(run,))], 0.5)


def test_csv_has_a_row_for_each_run_and_for_each_round(
    six: list[RunFolder], tmp_path: Path
) -> None:
    compared = Comparison.of(six, 0.4)
    compared.write_csv(tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["fedmx_group"], row["seed"], row["logic.preset"]) for row in rows[2:4]] == [
        ("fedavg", "3", "fedavg"),
        ("fedprox", "1", "fedprox"),
    ]
    assert [row["rounds_to_target"] for row in rows[:3]] == ["", "2", "2"]
    assert float(rows[2]["final_accuracy"]) == pytest.approx(0.6)
    assert rows[2]["up_bytes"] == str(2 * 2**20)
    assert rows[0]["run"] == str(six[0].path)
    compared.write_figures(tmp_path / "figures")
    with (tmp_path / "figures" / "curves.csv").open(newline="") as file:
        rounds = list(csv.DictReader(file))
    assert len(rounds) == 12
    assert (rounds[1]["round"], rounds[1]["accuracy"], rounds[1]["bytes"]) == (
        "2",
        "0.2",
        str(4 * 2**20),
    )


def test_latex_has_the_rules_of_booktabs_and_escapes_names(
    six: list[RunFolder], tmp_path: Path
) -> None:
    best = make(tmp_path / "runs", "fedprox", 4, rate="0.5", accuracies=(0.9, 0.95))
    Comparison.of([*six, best], 0.4).write_latex(tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text("utf-8")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrrrrrrr}"):
        assert rule in text
    assert (
        r"fedavg, learning\_rate 0.1 & 3 & 40.00 (20.00--60.00) & 40.00 (20.00--60.00)"
        r" & 2.00 & 2.00 & 2 [2 of 3] & 4.00 [2 of 3] \\"
    ) in text
    assert r"fedprox, learning\_rate 0.5 & 1 & \textbf{95.00} & \textbf{95.00}" in text
    assert all(line.count("&") == 7 for line in text.splitlines() if line.endswith(r"\\"))
    assert escape(r"a_b 50% #1 \x{} ~^$&") == (
        r"a\_b 50\% \#1 \textbackslash{}x\{\} \textasciitilde{}\textasciicircum{}\$\&"
    )


def test_no_output_replaces_a_file_that_fedmx_did_not_write(
    six: list[RunFolder], tmp_path: Path
) -> None:
    compared = Comparison.of(six)
    folder = tmp_path / "figures"
    folder.mkdir()
    for path in (tmp_path / "own.csv", tmp_path / "own.tex", folder / "loss-time.pdf"):
        path.write_text("mine")
    for write in (
        lambda: compared.write_csv(tmp_path / "own.csv"),
        lambda: compared.write_latex(tmp_path / "own.tex"),
        lambda: compared.write_figures(folder),
    ):
        with pytest.raises(FedmxError, match="fedmx did not write this file"):
            write()
    assert [path.name for path in folder.iterdir()] == ["loss-time.pdf"], "refused before writing"
    with pytest.raises(FedmxError, match=r"ends in \.csv"):
        compared.write_csv(tmp_path / "table.txt")
    for _ in range(2):  # its own files it replaces
        compared.write_csv(tmp_path / "table.csv")
        compared.write_latex(tmp_path / "table.tex")
        compared.write_figures(tmp_path / "fresh")


def test_the_command_writes_all_of_them(
    six: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(run.path) for run in six]
    options = ["--figures", "figures", "--csv", "runs.csv", "--latex", "table.tex"]
    result = CliRunner().invoke(app, ["report", *runs, *options])
    assert result.exit_code == 0, result.output
    for said in (
        "report: report.html",
        "figures: 13 files in figures",
        "table: runs.csv",
        "table: table.tex",
    ):
        assert said in result.output
    for name in ("report.html", "figures/loss-bytes.pdf", "runs.csv", "table.tex"):
        assert (tmp_path / name).stat().st_size > 0


def test_python_gives_frames_and_axes(
    six: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    pandas = pytest.importorskip("pandas")
    compared = Comparison.read([run.path for run in six], target=0.4)
    frame = compared.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("fedmx_group")["final_accuracy"].mean().round(3).to_dict() == {
        "fedavg": 0.4,
        "fedprox": 0.4,
    }
    assert len(compared.curves_to_pandas()) == 12
    axes = Figure().add_subplot()
    assert compared.plot("loss", "bytes", axes) is axes
    assert {text.get_text() for text in axes.texts} == {"fedavg", "fedprox"}
    assert axes.get_ylabel() == "loss"
    with pytest.raises(FedmxError, match="'f1': cannot be drawn; there are accuracy, loss"):
        compared.plot("f1", axes=axes)
    with pytest.raises(FedmxError, match="no run has values of accuracy against virtual time"):
        compared.plot("accuracy", "virtual time", Figure().add_subplot())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedmxError, match=r"fedmx\[pandas\]"):
        compared.to_pandas()
    assert len(compared.table()) == 6, "rows need no pandas"


def test_every_figure_of_a_page_can_be_saved_without_a_network(
    six: list[RunFolder], tmp_path: Path
) -> None:
    write_report(six, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    links = re.findall(r'href="data:image/svg\+xml;base64,([^"]+)" download="([^"]+)"', page)
    assert len(links) == page.count("<figure>") == 6
    assert links[0][1] == "accuracy-against-rounds.svg"
    for content, _ in links:
        svg = base64.b64decode(content).decode()
        assert "var(--" not in svg, "a file has no page's colours"
        assert ElementTree.fromstring(svg).attrib["width"].endswith("pt")
