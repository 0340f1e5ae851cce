"""Runs are compared by group: names, means, bands, tables, and files for papers."""

from __future__ import annotations

import base64
import csv
import itertools
import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from rich.console import Console
from typer.testing import CliRunner

from fedmx import FedmxError, RunFolder
from fedmx.cli.main import app
from fedmx.quantities import OF_CLASSES
from fedmx.report import Comparison, write_report
from fedmx.report.curves import AXES, band_of, draw, measures_of, plot
from fedmx.report.curves_section import curves_section
from fedmx.report.differences import differences_section, verdict_on_pairs
from fedmx.report.groups import Cell, Group, compare_groups, word
from fedmx.report.html import Html
from fedmx.report.paper import escape, latex_table
from fedmx.report.summary import ABSENT, Curve, RunSummary
from fedmx.report.svg import (
    COLOURS,
    PAPER,
    LineEnd,
    Spot,
    captioned,
    html_of,
    label_lines,
    new_figure,
    spread,
)
from layers.extras import install

MEASURES = measures_of([Curve(metrics=OF_CLASSES)])

EXPERIMENT = """
name: {name}
seed: {seed}
rounds: {rounds}
compute:
  model: 2nn
  train: {{learning_rate: {rate}}}
logic: {{preset: {preset}}}
"""


def make(
    parent: Path,
    preset: str = "fedavg",
    seed: int = 1,
    rate: str = "0.1",
    accuracies: Sequence[float] = (0.2, 0.4),
    rounds: int = 4,
    losses: Sequence[float] | None = None,
    train_losses: Sequence[float] | None = None,
    done: bool = True,
) -> RunFolder:
    name = f"a-rather-long-name-of-{preset}-s{seed}-{rate}"
    text = EXPERIMENT.format(name=repr(name), preset=preset, seed=seed, rate=rate, rounds=rounds)
    run = RunFolder.create(parent, name, text, {"seed": seed, "mode": "simulation"})
    losses = [1 - accuracy for accuracy in accuracies] if losses is None else losses
    for number, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), start=1):
        record = {"round": number, "accuracy": accuracy, "loss": loss, "seconds": 1.0}
        record["train_loss"] = train_losses[number - 1] if train_losses else None
        run.append_round({**record, "up_bytes": 2**20, "down_bytes": 2**20})
    if done:
        run.finish("done")
    return run


@pytest.fixture
def six(tmp_path: Path) -> list[RunFolder]:
    return [
        make(tmp_path / "runs", preset, seed, accuracies=(0.1 * seed, 0.2 * seed))
        for seed in (1, 2, 3)
        for preset in ("fedavg", "fedprox")
    ]


def names(*runs: RunFolder) -> list[str]:
    return [group.name for group in Comparison.of(runs).groups]


def test_seeds_are_grouped_and_names_have_only_differences(six: list[RunFolder]) -> None:
    compared = Comparison.of(six)
    assert [group.name for group in compared.groups] == ["fedavg", "fedprox"]
    assert [len(group.runs) for group in compared.groups] == [3, 3]
    assert compared.names[:2] == ["fedavg, seed 1", "fedavg, seed 2"]
    assert [folder.facts["seed"] for folder in compared.folders] == [1, 2, 3, 1, 2, 3]


def test_names_are_as_short_as_possible(tmp_path: Path) -> None:
    slow, fast = make(tmp_path), make(tmp_path, rate="0.5")
    other = make(tmp_path, "{name: fedprox, mu: 1}")
    assert names(slow, fast) == ["learning_rate 0.1", "learning_rate 0.5"]
    assert names(slow, other) == ["fedavg", "fedprox"], "mu adds nothing to the preset"
    assert names(slow, fast, other) == [
        "fedavg, learning_rate 0.1",
        "fedavg, learning_rate 0.5",
        "fedprox, learning_rate 0.1",
    ]
    little = make(tmp_path, "{name: fedprox, mu: 0.1}")
    assert names(other, little) == ["mu 1", "mu 0.1"]
    assert names(slow, other, little) == ["fedavg", "fedprox, mu 1", "fedprox, mu 0.1"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("logic.hooks", "none", "no hooks"),
        ("clock.deadline_s", "null", "no deadline_s"),
        ("logic.hooks", "trimmed:Trimmed", "trimmed:Trimmed"),
        ("logic.preset.mu", "0.1", "mu 0.1"),
        ("logic.preset.mu", ABSENT, ""),
        ("logic.preset", f"/a/b/{'x' * 40}{'y' * 40}.py", f"{'x' * 20}…{'y' * 17}.py"),
    ],
)
def test_a_name_says_which_setting_is_not_given(path: str, value: str, named: str) -> None:
    assert word(path, value) == named


def test_runs_with_the_same_seed_are_not_one_group(tmp_path: Path) -> None:
    twice = [make(tmp_path / "a"), make(tmp_path / "b")]
    assert len(Comparison.of(twice).groups) == 2
    assert len(set(names(*twice))) == 2


def test_a_band_has_the_mean_and_the_range_over_common_rounds(tmp_path: Path) -> None:
    long = RunSummary.of(make(tmp_path, accuracies=(0.2, 0.4, 0.9)))
    short = RunSummary.of(make(tmp_path, seed=2, accuracies=(0.4, 0.8)))
    band = band_of([long, short], lambda p: p.round, lambda p: p.accuracy)
    assert band.mean == [(1, pytest.approx(0.3)), (2, pytest.approx(0.6))]
    assert (band.low, band.high) == ([0.2, 0.4], [0.4, 0.8])
    assert band.tails == [[(2, 0.4), (3, 0.9)]], "rounds of a single seed have no mean"


def test_the_page_has_the_mean_the_range_and_the_seeds_of_each_group(six: list[RunFolder]) -> None:
    page = page_of(six)
    for part in ("<td>40.00 %", "20.00 % to 60.00 %", *(run.name for run in six)):
        assert part in page


def cells_of(compared: Comparison) -> dict[str, list[Cell]]:
    return dict(compare_groups(compared.groups, compared.target))


def test_a_run_that_has_not_finished_has_no_final_figures(tmp_path: Path) -> None:
    done = make(tmp_path, "fedavg", accuracies=(0.2, 0.5))
    going = make(tmp_path, "fedprox", accuracies=(0.9,), done=False)
    compared = Comparison.of([done, going], 0.95)
    cells = cells_of(compared)
    assert [cell.text for cell in cells["Final accuracy"]] == ["50.00 %", "90.00 % so far"]
    assert [cell.text for cell in cells["Final loss"]] == ["0.5", "0.1 so far"]
    assert [cell.text for cell in cells["Bytes up"]] == ["2.00 MiB", "1.00 MiB"]
    assert [cell.text for cell in cells["To 95 %: rounds"]] == ["not reached", "not yet"]
    assert [group.title for group in compared.groups] == ["fedavg", "fedprox (1 of 4 rounds)"]
    latex = latex_table(compared.groups, 0.95)
    assert "textbf" not in latex, "nothing is the best while a run may still change"
    assert r"{\raggedright fedprox\strut} & -- & -- & -- & -- \\" in latex
    assert r"\scriptsize" not in latex, "groups of one seed have no range"


def test_means_are_over_the_seeds_that_have_finished(tmp_path: Path) -> None:
    runs = [make(tmp_path, seed=seed, accuracies=(0.2, 0.2 * seed)) for seed in (1, 2)]
    compared = Comparison.of([*runs, make(tmp_path, seed=3, accuracies=(0.9,), done=False)], 0.15)
    (cell,) = cells_of(compared)["Final accuracy"]
    assert (cell.text, cell.range) == ("30.00 %", "20.00 % to 40.00 %, 2 of 3")
    (cell,) = cells_of(compared)["To 15 %: rounds"]
    assert (cell.text, cell.range) == ("1", "2 of 3")
    latex = latex_table(compared.groups, 0.15)
    assert r"\strut} & 30.00 & 30.00 & 1 & 2.00 \\" in latex
    assert r"\scriptsize 2 of 3 seeds & \scriptsize 20.00--40.00 &" in latex
    assert compared.groups[0].title.endswith("(3 seeds, 1 not finished)")


def test_the_medians_say_how_many_seeds_reached_the_target(six: list[RunFolder]) -> None:
    compared = Comparison.of(six)  # seed 1 ends at 0.2, below the target
    section = str(differences_section(compared.groups, [compared.groups[:2]], 0.3))
    tables = [part.partition("</table>")[0] for part in section.split("each over its seeds")[1:4]]
    assert tables[1].count("<td>3</td>") == 2  # the final accuracy
    assert tables[2].count("<td>2 of 3</td>") == 2  # the rounds to the target
    assert "<td>50 %</td>" in section  # the probability of being better


def test_bytes_a_round_have_a_mean_over_the_seeds(tmp_path: Path) -> None:
    runs = [make(tmp_path, seed=seed) for seed in (1, 2)]
    for run, tasks in zip(runs, (1, 2), strict=True):
        run.facts.update(parameters=2**18, buffers=0)
        rows = [{**record, "tasks": 4 * tasks, "updates": 1} for record in run.rounds()]
        run.rounds = lambda rows=rows: rows  # type: ignore[method-assign]
    cells = cells_of(Comparison.of(runs))
    assert cells["Down a round"] == [Cell("1.00 MiB")]
    assert cells["Down a round against float32"] == [
        Cell("6 x smaller", "4 x smaller to 8 x smaller")
    ]


def loss_axes(tmp_path: Path, losses: Sequence[float], train: Sequence[float]) -> Axes:
    run = make(tmp_path, accuracies=[0.5] * len(losses), losses=losses, train_losses=train)
    axes = Figure().add_subplot()
    assert plot(axes, [Group.alone(RunSummary.of(run), "")], MEASURES[1], AXES[0])
    return axes


def test_the_loss_on_test_data_decides_the_scale_and_the_axis_names_it(tmp_path: Path) -> None:
    flat = loss_axes(tmp_path, (2.0, 0.4, 0.8), (2.0, 0.1, 0.001))
    assert (flat.get_yscale(), flat.get_ylabel()) == ("linear", "loss")
    steep = loss_axes(tmp_path, (2.0, 0.4, 0.01), (2.0, 1.9, 1.8))
    assert (steep.get_yscale(), steep.get_ylabel()) == ("log", "loss (logarithmic scale)")


def test_many_groups_have_a_row_each(tmp_path: Path) -> None:
    runs = [make(tmp_path, rate=f"0.{n}") for n in range(1, 8)]
    page = page_of(runs)
    results = page[page.index("<h2>Results</h2>") :]
    results = results[: results.index("</table>")]
    assert results.count("<tr>") == 8, "a row for each of many groups"
    assert 'class="scroll"' in results, "a wide table scrolls"
    for n in range(1, 8):
        assert f"learning_rate 0.{n}" in results
    for head in ("Status", "Rounds", "Final accuracy", "Bytes down", "Machine time"):
        assert f">{head}</th>" in results
    assert "0 MiB" not in re.findall(r"<td>([^<]*)</td>", results), "empty figures are left out"
    console = Console(width=100, file=None, color_system=None)
    with console.capture() as captured:
        console.print(Comparison.of(runs).text())
    lines = captured.get().splitlines()
    assert all(any(f"0.{n}" in line.split("│")[0] for line in lines) for n in range(1, 8))


def test_a_difference_is_filled_where_its_interval_excludes_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []

    def html(figure: Figure, title: str) -> Html:
        drawn.append(figure)
        return html_of(figure, title)

    monkeypatch.setattr("fedmx.report.differences.html_of", html)
    best = {"fedavg": 0.5, "fedprox": 0.8, "scaffold": 0.5}
    runs = [
        make(tmp_path, preset, seed, accuracies=(0.1, best[preset] + 0.01 * (seed % (2 + place))))
        for place, preset in enumerate(best)
        for seed in range(1, 7)
    ]
    groups = Comparison.of(runs).groups
    pairs = [(groups[1], groups[0]), (groups[2], groups[0])]
    section = str(differences_section(groups, [*pairs], None))
    points = [line for line in drawn[0].axes[0].get_lines() if line.get_marker() == "o"]
    assert [point.get_markerfacecolor() == "none" for point in points] == [False, True]
    assert float(points[0].get_xdata()[0]) == pytest.approx(30, abs=1)  # type: ignore[index]
    names = [text.get_text() for text in drawn[0].axes[0].texts]
    assert names == ["fedprox minus fedavg", "scaffold minus fedavg"]
    assert all(name in section for name in names)


@pytest.mark.parametrize(
    ("other", "seeds", "says", "colour"),
    [
        (0.3, 6, ("is worse than", "-2"), ""),
        (0.8, 6, ("is better than", "+2", "], 6 seeds"), "good"),
        (0.54, 6, ("do not differ significantly", "], 6 seeds"), ""),
        (0.8, 2, ("against", "+2", "2 seeds: too few"), ""),
    ],
)
def test_the_verdict_on_a_pair_has_the_difference_the_interval_and_the_seeds(
    other: float, seeds: int, says: tuple[str, ...], colour: str, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(1)
    runs = [
        make(tmp_path, preset, seed, accuracies=(best + drawn.uniform(0, 0.1), best - 0.1))
        for preset, best in (("fedavg", 0.5), ("fedprox", other))
        for seed in range(1, seeds + 1)
    ]
    verdict = str(verdict_on_pairs(Comparison.of(runs).pairs, OF_CLASSES[0]))
    for words in ("fedprox", "best accuracy", "final accuracy", "points", *says):
        assert words in verdict
    assert ('class="good"' in verdict) == bool(colour)
    assert ("], 6 seeds" in verdict) == (seeds == 6)


def test_of_many_pairs_the_verdict_is_how_many_differ(tmp_path: Path) -> None:
    runs = [
        make(tmp_path, "fedavg", seed, rate, (0.1 * place + 0.001 * seed * place,))
        for place, rate in enumerate(("0.1", "0.2", "0.3", "0.4", "0.5"))
        for seed in (1, 2, 3)
    ]
    compared = Comparison.of(runs)
    assert "10 of 10 pairs" in str(verdict_on_pairs(compared.pairs, OF_CLASSES[0]))


def test_a_page_says_why_each_seed_ended_and_how_many_lines_are_damaged(tmp_path: Path) -> None:
    runs = [make(tmp_path, seed=seed, done=False) for seed in (1, 2, 3)]
    runs[0].finish("failed", "disk")
    runs[1].finish("stopped", "left")
    runs[2].finish("done")
    records = runs[0].path / "rounds.jsonl"
    records.write_text(records.read_text().replace("accuracy", "accurbcy", 1))
    runs[0] = RunFolder.open(runs[0].path, salvage=True)
    page = page_of([*runs, make(tmp_path, "fedprox")])
    assert "seed 1: disk" in page
    assert "seed 2: left" in page
    assert "seed 3" not in page.partition("</table>")[0]
    alone = page_of([runs[0], make(tmp_path, "scaffold")])
    damaged = alone[alone.index("Damaged, left out") :].partition("</tr>")[0]
    assert re.findall(r"<td>(\d+)</td>", damaged) == ["1", "0"]


def test_a_run_that_was_never_evaluated_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(FedmxError, match="evaluated"):
        Comparison.of([make(tmp_path, accuracies=())]).write_figures(tmp_path / "figures")
    (tmp_path / "file").touch()
    with pytest.raises(FedmxError, match=r"file/a\.csv"):
        Comparison.of([make(tmp_path)]).write_csv(tmp_path / "file" / "a.csv")


def test_lines_have_their_names_at_the_end(six: list[RunFolder]) -> None:
    figure = draw(Comparison.of(six).groups, MEASURES[0], AXES[0])
    assert re.findall(r"<text[^>]*>(fed\w+)</text>", figure) == ["fedavg", "fedprox"]
    one = draw([Group.alone(RunSummary.of(six[0]), "alone")], MEASURES[0], AXES[0])
    assert "alone" not in one


@given(st.lists(st.tuples(st.floats(-0.5, 1.5), st.floats(0.01, 0.2)), min_size=1, max_size=5))
def test_names_never_overlap_and_stay_beside_the_axes(wanted: list[tuple[float, float]]) -> None:
    heights = [height for _, height in wanted]
    places = spread([place for place, _ in wanted], heights)
    order = sorted(range(len(places)), key=lambda index: places[index])
    for one, other in itertools.pairwise(order):
        assert places[other] - places[one] >= (heights[one] + heights[other]) / 2 - 1e-9
    for place, height in zip(places, heights, strict=True):
        assert height / 2 - 1e-9 <= place <= 1 - height / 2 + 1e-9


def limits(tmp_path: Path, measure: int, values: Sequence[float]) -> tuple[float, float]:
    axes = Figure().add_subplot()
    run = RunSummary.of(make(tmp_path, accuracies=values))
    assert plot(axes, [Group.alone(run, "")], MEASURES[measure], AXES[0])
    low, high = axes.get_ylim()
    return float(low), float(high)


def test_an_axis_does_not_magnify_noise(tmp_path: Path) -> None:
    low, high = limits(tmp_path, 0, (0.1, 0.101, 0.099))
    assert high - low >= 10
    low, high = limits(tmp_path, 0, (0.999, 1.0, 0.999))
    assert (high - low >= 10, high) == (True, 100)
    low, high = limits(tmp_path, 1, (0.1, 0.101, 0.099))
    assert high - low >= 0.18
    low, high = limits(tmp_path, 0, (0.1, 0.9))
    assert 0 <= low < 10 < 90 < high <= 100


def matrix(numbers: str) -> np.ndarray:
    return np.reshape([float(number) for number in numbers.split()], (3, 3))


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": matrix(
        "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998"
    ),
    "deuteranopia": matrix(
        "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881"
    ),
    "tritanopia": matrix(
        "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900"
    ),
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def lab(colour: str, seen: str) -> np.ndarray:
    """The CIELAB coordinates of a colour as a kind of vision sees it."""
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(VISION[seen]) @ linear, 0, 1)
    x, y, z = np.array(TO_XYZ) @ linear / np.array([0.9505, 1.0, 1.089])
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def palettes() -> list[list[str]]:
    """The colours of the page, on light and on dark."""
    style = Path(__file__).parents[3] / "fedmx" / "report" / "style.css"
    found = re.findall(r"--run-\d: (#[0-9a-f]{6})", style.read_text("utf-8"))
    return [found[:COLOURS], found[COLOURS:]]


@pytest.mark.parametrize("seen", VISION)
def test_colours_differ_for_colour_blind_readers(seen: str) -> None:
    light, dark = palettes()
    assert tuple(light) == PAPER.lines
    for colours in (light, dark):
        assert len(colours) == COLOURS
        for one, other in itertools.combinations(colours, 2):
            far = np.linalg.norm(lab(one, seen) - lab(other, seen))
            assert far > 15, (one, other)


def page_of(runs: list[RunFolder]) -> str:
    path = runs[0].path / "report.html"
    write_report(runs, path)
    return path.read_text("utf-8")


COLUMN_POINTS = 3.3 * 72


def test_figures_are_one_column_wide_with_their_fonts(six: list[RunFolder], tmp_path: Path) -> None:
    written = Comparison.of(six, 0.5).write_figures(tmp_path / "figures")
    drawn = itertools.product(
        ("accuracy", "loss"), ("rounds", "bytes", "machine-time"), ("pdf", "svg")
    )
    assert {path.name for path in written} == {
        *map("{0[0]}-{0[1]}.{0[2]}".format, drawn),
        "curves.csv",
    }
    pdf = (tmp_path / "figures" / "accuracy-rounds.pdf").read_bytes()
    assert b"/FontFile2" in pdf, "the font is in the file, as TrueType"
    assert b"/Type3" not in pdf
    box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ", pdf)
    assert float(box[1]) == pytest.approx(COLUMN_POINTS, abs=1)
    svg = ElementTree.parse(tmp_path / "figures" / "accuracy-rounds.svg").getroot()
    assert float(svg.attrib["width"].removesuffix("pt")) == pytest.approx(COLUMN_POINTS, abs=1)
    assert not svg.findall(".//{http://www.w3.org/2000/svg}text"), "letters are shapes"


def test_the_same_runs_give_the_same_files(six: list[RunFolder], tmp_path: Path) -> None:
    compared = Comparison.of(six)
    first = {path: path.read_bytes() for path in compared.write_figures(tmp_path / "figures")}
    assert {p: p.read_bytes() for p in compared.write_figures(tmp_path / "figures")} == first


def test_a_varying_number_of_rounds_keeps_its_column(tmp_path: Path) -> None:
    rows = Comparison.of([make(tmp_path / str(n), rounds=n) for n in (4, 9)]).table()
    assert [(row["rounds"], row["rounds_done"]) for row in rows] == [("4", 2), ("9", 2)]


def test_latex_has_all_digits_of_a_large_number_of_rounds(six: list[RunFolder]) -> None:
    (group, *_) = Comparison.of(six).groups
    (point, *_) = group.runs[0].points
    run = replace(group.runs[0], points=[replace(point, round=1234, accuracy=0.9)])
    assert " & 1234 & " in latex_table([replace(group, runs=(run,))], 0.5)


def test_the_curves_beside_the_figures_have_a_row_for_each_round(
    six: list[RunFolder], tmp_path: Path
) -> None:
    Comparison.of(six, 0.4).write_figures(tmp_path)
    with (tmp_path / "curves.csv").open(newline="") as file:
        rounds = list(csv.DictReader(file))
    assert len(rounds) == 12
    second = rounds[1]
    assert (second["round"], second["accuracy"], second["bytes"]) == ("2", "0.2", str(4 * 2**20))


def test_latex_has_escaped_names(tmp_path: Path) -> None:
    compared = Comparison.of([make(tmp_path), make(tmp_path, rate="0.5")])
    assert r"\raggedright learning\_rate 0.1\strut}" in latex_table(compared.groups, None)
    assert escape(r"a_b 50% #1 \x{} ~^$&") == (
        r"a\_b 50\% \#1 \textbackslash{}x\{\} \textasciitilde{}\textasciicircum{}\$\&"
    )


def test_files_that_fedmx_did_not_write_are_kept(six: list[RunFolder], tmp_path: Path) -> None:
    compared = Comparison.of(six)
    folder = tmp_path / "figures"
    folder.mkdir()
    for path in (tmp_path / "own.csv", tmp_path / "own.tex", folder / "loss-machine-time.pdf"):
        path.write_text("mine")
    for write in (
        lambda: compared.write_csv(tmp_path / "own.csv"),
        lambda: compared.write_latex(tmp_path / "own.tex"),
        lambda: compared.write_figures(folder),
    ):
        with pytest.raises(FedmxError, match="did not write"):
            write()
    assert [path.name for path in folder.iterdir()] == ["loss-machine-time.pdf"]
    with pytest.raises(FedmxError, match=r"ends in \.csv"):
        compared.write_csv(tmp_path / "table.txt")
    for _ in range(2):  # its own files are replaced
        compared.write_csv(tmp_path / "table.csv")
        compared.write_latex(tmp_path / "table.tex")
        compared.write_figures(tmp_path / "fresh")


def test_the_command_writes_all_files(
    six: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(run.path) for run in six]
    options = ["--figures", "figures", "--csv", "runs.csv", "--latex", "table.tex"]
    result = CliRunner().invoke(app, ["report", *runs, *options])
    assert result.exit_code == 0, result.output
    assert "figures: 13 files in figures" in result.output
    for name in ("report.html", "figures/loss-bytes.pdf", "runs.csv", "table.tex"):
        assert (tmp_path / name).stat().st_size > 0
        assert name.partition("/")[0] in result.output


def test_python_has_frames_and_axes(six: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    compared = Comparison.read([run.path for run in six], target=0.4)
    frame = compared.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    means = frame.groupby("fedmx_group")["accuracy"].mean().round(3).to_dict()
    assert means == {"fedavg": 0.4, "fedprox": 0.4}
    assert len(compared.curves_to_pandas()) == 12
    axes = Figure().add_subplot()
    assert compared.plot("loss", "bytes", axes) is axes
    assert set(names_on(axes)) == {"fedavg", "fedprox"}
    assert axes.get_ylabel() == "loss"
    with pytest.raises(FedmxError, match="measure 'f1'"):
        compared.plot("f1", axes=axes)
    with pytest.raises(FedmxError, match="accuracy against virtual time"):
        compared.plot("accuracy", "virtual time", Figure().add_subplot())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedmxError, match=re.escape(install("pandas"))):
        compared.to_pandas()
    assert len(compared.table()) == 6, "rows do not need pandas"


def test_each_figure_can_be_saved_without_a_network(six: list[RunFolder], tmp_path: Path) -> None:
    write_report(six, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    links = re.findall(r'href="data:image/svg\+xml;base64,([^"]+)" download="([^"]+)"', page)
    assert len(links) == page.count("<figure>") == 6
    assert links[0][1] == "accuracy-against-rounds.svg"
    for content, _ in links:
        svg = base64.b64decode(content).decode()
        assert "var(--" not in svg, "the file has no variables of the page"
        assert ElementTree.fromstring(svg).attrib["width"].endswith("pt")


def test_one_switch_chooses_the_axis_of_all_curves_without_a_script(six: list[RunFolder]) -> None:
    page = page_of(six).partition("<script>")[0]
    for axis in range(3):
        assert f"#axis-{axis}:checked ~ .of-axis-{axis}" in page


def test_all_of_a_curve_has_the_key_of_its_name_in_the_legend(six: list[RunFolder]) -> None:
    section = str(curves_section(Comparison.of(six).groups, (None, None), None))
    keys = re.findall(r'<li data-key="(\d)"><svg.*?</svg>([^<]*)', section)
    assert [(key, name.partition(" ")[0]) for key, name in keys] == [
        ("0", "fedavg"),
        ("1", "fedprox"),
    ]
    figures = re.findall(r"<figure>.*?</figure>", section, flags=re.DOTALL)
    for figure in figures:
        for key, _ in keys:
            lines = re.findall(rf'<g data-curve="{key}">', figure)
            assert len(lines) >= 1 + 3, "the mean and three seeds"
            assert len(re.findall(rf'<circle [^>]*data-curve="{key}"', figure)) == 2


def test_a_pointer_finds_the_values_of_a_curve(six: list[RunFolder]) -> None:
    figure = draw(Comparison.of(six).groups, MEASURES[0], AXES[1])
    titles = re.findall(r"<circle [^>]*><title>([^<]*)</title></circle>", figure)
    assert len(titles) == 4, "two groups, two rounds"
    assert titles[1] == ("fedavg\nround 2, 4.00 MiB\naccuracy 40.00 % (mean of 20.00 % to 60.00 %)")
    assert 'class="spots"' not in captioned_file(figure), "a saved figure has no texts to find"


def test_a_text_for_a_pointer_is_at_its_point() -> None:
    with new_figure(4, 2) as figure:  # 288 by 144 points
        axes = figure.add_axes((0.25, 0.5, 0.5, 0.25))
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 4)
        svg = html_of(figure, "t", axes, [Spot(0, 0, "a"), Spot(10, 4, "b"), Spot(5, 1, "c")])
    found = re.findall(r'<circle cx="([^"]+)" cy="([^"]+)" r="5"><title>(.)</title>', svg)
    assert found == [("72.0", "72.0", "a"), ("216.0", "36.0", "b"), ("144.0", "63.0", "c")]


def test_a_character_that_the_font_lacks_is_left_to_the_browser() -> None:
    with new_figure(2, 1) as figure, warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.text(0.1, 0.5, "学习")
        assert "学习" in html_of(figure, "t")


def names_on(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [one.get_text() for one in (axes.texts if legend is None else legend.get_texts())]


share = st.floats(0, 1)
places = st.lists(st.tuples(st.just(1.0) | share, share), min_size=1, max_size=9)


@settings(deadline=None)
@given(places=places, scale=st.sampled_from(["linear", "log"]))
@example(places=[(1.0, 0.25), (1.0, 0.75)], scale="log")
@example(places=[(1.0, 0.25), (0.5, 0.75)], scale="linear")
@example(places=[(1.0, 0.5)] * 9, scale="linear")
def test_a_name_is_close_to_the_end_of_its_line_or_all_are_in_a_legend(
    places: list[tuple[float, float]], scale: Any
) -> None:
    axes = Figure(figsize=(5, 3)).add_subplot()
    axes.set_xscale(scale)
    axes.set_xlim(1, 10)
    ends = [
        LineEnd(10**x if scale == "log" else 1 + 9 * x, y, f"${n}$ the first of the lines", n)
        for n, (x, y) in enumerate(places)
    ]
    label_lines(axes, ends, PAPER)
    assert names_on(axes) == [f"${n}$ the first of\nthe lines" for n in range(len(places))]
    if axes.get_legend() is not None:
        assert not axes.texts
        return
    assert all(x > 0.95 for x, _ in places)
    texts = [one for one in axes.texts if isinstance(one, Annotation)]
    assert [one.xy for one in texts] == [(1.0, pytest.approx(y)) for _, y in places]
    for one in texts:
        assert math.hypot(*one.xyann) <= 10.8, "at most 15 px in a figure of 500 px"
        assert one.arrow_patch is not None
        assert one.arrow_patch.get_linestyle() == "solid"
        assert to_hex(one.arrow_patch.get_edgecolor()) == PAPER.quiet


def test_lines_that_end_apart_at_the_edge_have_their_names_there() -> None:
    axes = Figure(figsize=(5, 3)).add_subplot()
    label_lines(axes, [LineEnd(1.0, 0.2, "one", 0), LineEnd(1.0, 0.8, "two", 1)], PAPER)
    assert (names_on(axes), axes.get_legend()) == (["one", "two"], None)


def captioned_file(figure: str) -> str:
    link = re.search(r"base64,([^\"]+)", captioned("x", Html(figure)))
    return base64.b64decode(link[1]).decode()


def test_few_seeds_are_single_lines_and_many_a_band(tmp_path: Path) -> None:
    for seeds, lines, bands in ((3, 1 + 3, 0), (6, 1, 1)):
        runs = [make(tmp_path / str(seeds), seed=seed) for seed in range(1, seeds + 1)]
        axes = Figure().add_subplot()
        assert plot(axes, Comparison.of(runs).groups, MEASURES[0], AXES[0])
        assert (len(axes.lines), len(axes.collections)) == (lines, bands)
    page = page_of(runs)
    assert "shaded: from the smallest to the largest" in page
    assert "thin after its end" not in page, "no seed has fewer rounds"


@pytest.mark.parametrize("rounds", [41, 200])
def test_a_long_line_has_few_markers_at_rounds_of_its_own(tmp_path: Path, rounds: int) -> None:
    runs = [make(tmp_path, rate=f"0.{n}", accuracies=[0.5] * rounds) for n in (1, 2, 3)]
    axes = Figure().add_subplot()
    spots = plot(axes, Comparison.of(runs).groups, MEASURES[0], AXES[0])
    third = [int(spot.x) for spot in spots[: len(spots) // 3]]
    assert len(third) <= 61, "a pointer finds a text every few rounds"
    assert (third[0], third[-1]) == (1, rounds)
    assert {b - a for a, b in itertools.pairwise(third[:-1])} == {-(-rounds // 60)}
    marked = [
        set(range(start, rounds, every))
        for start, every in (line.get_markevery() for line in axes.lines)
    ]
    assert len(marked) == 3
    assert all(6 <= len(one) <= 10 for one in marked)
    assert len(set.union(*marked)) == sum(map(len, marked))
