"""Runs that differ in their seed alone are one group, with a short name, a mean and a band."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from fedmx import RunFolder
from fedmx.report import Comparison, summary_text, write_report
from fedmx.report.curves import AXES, MEASURES, band_of, draw, plot
from fedmx.report.groups import Group
from fedmx.report.summary import summarise
from fedmx.report.svg import COLOURS, PAPER, line_style, marker, spread

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
) -> RunFolder:
    name = f"a-rather-long-name-of-{preset}-s{seed}-{rate}"
    text = EXPERIMENT.format(name=repr(name), preset=preset, seed=seed, rate=rate, rounds=rounds)
    run = RunFolder.create(parent, name, text, {"seed": seed, "mode": "simulation"})
    for number, accuracy in enumerate(accuracies, start=1):
        run.append_round(
            {
                "round": number,
                "accuracy": accuracy,
                "loss": 1 - accuracy,
                "up_bytes": 2**20,
                "down_bytes": 2**20,
                "seconds": 1.0,
            }
        )
    run.finish("done")
    return run


@pytest.fixture
def six(tmp_path: Path) -> list[RunFolder]:
    return [
        make(tmp_path, preset, seed, accuracies=(0.1 * seed, 0.2 * seed))
        for seed in (1, 2, 3)
        for preset in ("fedavg", "fedprox")
    ]


def names(*runs: RunFolder) -> list[str]:
    return [group.name for group in Comparison.of(runs).groups]


def test_seeds_are_grouped_and_a_name_has_only_what_differs(six: list[RunFolder]) -> None:
    compared = Comparison.of(six)
    assert [group.name for group in compared.groups] == ["fedavg", "fedprox"]
    assert [len(group.runs) for group in compared.groups] == [3, 3]
    assert compared.names[:2] == ["fedavg, seed 1", "fedavg, seed 2"]
    assert [folder.facts["seed"] for folder in compared.folders] == [1, 2, 3, 1, 2, 3]


def test_names_say_as_much_as_is_needed(tmp_path: Path) -> None:
    slow, fast, other = (
        make(tmp_path),
        make(tmp_path, rate="0.5"),
        make(tmp_path, "{name: fedprox, mu: 1}"),
    )
    assert names(slow, fast) == ["learning_rate 0.1", "learning_rate 0.5"]
    assert names(slow, other) == ["fedavg", "fedprox"], "mu says no more than the preset"
    assert names(slow, fast, other) == [
        "fedavg, learning_rate 0.1",
        "fedavg, learning_rate 0.5",
        "fedprox, learning_rate 0.1",
    ]
    little = make(tmp_path, "{name: fedprox, mu: 0.1}")
    assert names(other, little) == ["mu 1", "mu 0.1"]
    assert names(slow, other, little) == ["fedavg", "fedprox, mu 1", "fedprox, mu 0.1"]


def test_one_seed_that_was_run_twice_is_no_group(tmp_path: Path) -> None:
    twice = [make(tmp_path / "a"), make(tmp_path / "b")]
    assert len(Comparison.of(twice).groups) == 2
    assert len(set(names(*twice))) == 2


def test_a_band_is_the_mean_and_the_range_in_the_rounds_that_all_seeds_have(tmp_path: Path) -> None:
    long = summarise(make(tmp_path, accuracies=(0.2, 0.4, 0.9)))
    short = summarise(make(tmp_path, seed=2, accuracies=(0.4, 0.8)))
    band = band_of([long, short], lambda p: p.round, lambda p: p.accuracy)
    assert band.mean == [(1, pytest.approx(0.3)), (2, pytest.approx(0.6))]
    assert (band.low, band.high) == ([0.2, 0.4], [0.4, 0.8])
    assert band.tails == [[(2, 0.4), (3, 0.9)]], "what one seed has alone is no mean"


def test_the_table_has_the_mean_and_the_range_of_each_group(six: list[RunFolder]) -> None:
    page = page_of(six)
    assert "<td>40.00 %" in page
    assert all(run.name in page for run in six), "which folder is which seed stands there, too"
    assert "20.00 % to 60.00 %" in page
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as captured:
        console.print(summary_text(six))
    shown = captured.get()
    assert "fedprox (3 seeds)" in shown
    assert "20.00 % to 60.00 %" in shown


def test_nothing_of_many_groups_is_cut_off(tmp_path: Path) -> None:
    runs = [make(tmp_path, rate=f"0.{n}") for n in range(1, 8)]
    page = page_of(runs)
    results = page[page.index("<h2>Results</h2>") :]
    results = results[: results.index("</table>")]
    assert results.count("<tr>") == 8, "a row for each of many groups"
    assert 'class="scroll"' in results, "and what is too wide scrolls"
    for n in range(1, 8):
        assert f"learning_rate 0.{n}" in results
    for head in ("Status", "Rounds", "Final accuracy", "Bytes down", "Time"):
        assert f">{head}</th>" in results
    assert "0 MiB" not in re.findall(r"<td>([^<]*)</td>", results), "what says nothing is gone"


def test_lines_have_their_names_at_their_ends(six: list[RunFolder]) -> None:
    figure = draw(Comparison.of(six).groups, MEASURES[0], AXES[0])
    assert figure is not None
    assert re.findall(r"<text[^>]*>(fed\w+)</text>", figure) == ["fedavg", "fedprox"]
    one = draw([Group.alone(summarise(six[0]), "alone")], MEASURES[0], AXES[0])
    assert one is not None
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
    run = summarise(make(tmp_path, accuracies=values))
    assert plot(axes, [Group.alone(run, "")], MEASURES[measure], AXES[0])
    low, high = axes.get_ylim()
    return float(low), float(high)


def test_an_axis_does_not_blow_up_noise(tmp_path: Path) -> None:
    low, high = limits(tmp_path, 0, (0.1, 0.101, 0.099))
    assert high - low >= 10
    low, high = limits(tmp_path, 0, (0.999, 1.0, 0.999))
    assert (high - low >= 10, high) == (True, 100)
    low, high = limits(tmp_path, 1, (0.1, 0.101, 0.099))
    assert high - low >= 0.18
    low, high = limits(tmp_path, 0, (0.1, 0.9))
    assert 0 <= low < 10 < 90 < high <= 100


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def lab(colour: str, seen: str) -> np.ndarray:
    """The CIELAB coordinates of a colour as somebody sees it."""
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
def test_colour_blind_readers_tell_the_colours_apart(seen: str) -> None:
    light, dark = palettes()
    assert tuple(light) == PAPER.lines
    for colours in (light, dark):
        assert len(colours) == COLOURS
        for one, other in itertools.combinations(colours, 2):
            far = np.linalg.norm(lab(one, seen) - lab(other, seen))
            assert far > 15, (one, other)


def test_without_colours_dashes_and_markers_tell_lines_apart() -> None:
    looks = {(line_style(index), marker(index)) for index in range(COLOURS)}
    assert len(looks) == COLOURS


def page_of(runs: list[RunFolder]) -> str:
    path = runs[0].path / "report.html"
    write_report(runs, path)
    return path.read_text("utf-8")
