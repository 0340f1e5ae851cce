"""A table for LaTeX fits its column, and bold is what the paired intervals say is better."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedmx.report import Comparison
from fedmx.report.groups import Group
from fedmx.report.paper import Columns, latex_table
from tests.fedmx.report.test_comparison import make

TEX = shutil.which("pdflatex")  # what follows from the text alone is checked without it
NOISE = (0.00, 0.02, -0.02, 0.01, -0.01)


@pytest.fixture
def compared(tmp_path: Path) -> Comparison:
    """Three algorithms over five seeds: fedprox is 4 points better than fedavg, stc is as good."""
    of = {"fedavg": (0.80, 2.0), "fedprox": (0.84, 1.5), "stc": (0.80, 1.0)}
    runs = [
        make(tmp_path, preset, seed, accuracies=(0.5, mean + by * NOISE[seed - 1]))
        for preset, (mean, by) in of.items()
        for seed in range(1, 6)
    ]
    return Comparison.of(runs, 0.78)


def rows_of(latex: str) -> list[list[str]]:
    body = latex.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    return [line.removesuffix(r" \\").split(" & ") for line in body.strip().splitlines()]


def test_bold_is_the_mean_whose_paired_intervals_exclude_0(compared: Comparison) -> None:
    latex = latex_table(compared.groups, None, compared.pairs)
    bold = [[r"\textbf" in cell for cell in row] for row in rows_of(latex)[::2]]
    assert bold == [[False] * 5, [False, True, True, False, False], [False] * 5]
    # Without fedprox the other two have the same mean, so that neither is bold.
    others = [compared.groups[0], compared.groups[2]]
    latex = latex_table(others, None, [(others[1], others[0])])
    assert r"\textbf" not in latex
    assert r"\textbf" not in latex_table(compared.groups, None), "nothing is compared"


def test_the_largest_mean_of_few_seeds_is_not_bold(tmp_path: Path) -> None:
    runs = [
        make(tmp_path, preset, seed, accuracies=(0.5, 0.6 + 0.1 * seed * (preset == "fedprox")))
        for preset in ("fedavg", "fedprox")
        for seed in (1, 2)
    ]
    found = Comparison.of(runs)
    assert r"\textbf" not in latex_table(found.groups, None, found.pairs)


def test_ranges_are_in_a_second_row_below_the_means(compared: Comparison) -> None:
    first, second, *_ = rows_of(latex_table(compared.groups, 0.78, compared.pairs, "double"))
    assert first[1:] == ["80.00", "80.00", "2.00", "2.00", "--", "--"]
    assert second == [
        r"\scriptsize 5 seeds",
        *[r"\scriptsize 76.00--84.00"] * 2,
        *[r"\scriptsize"] * 2,
        *[r"\scriptsize 4 of 5"] * 2,
    ]
    heads = latex_table(compared.groups, 0.78).partition(r"\midrule")[0]
    assert re.findall(r"\{(\w+)\\\\", heads) == ["Final", "Best", "Rounds", "MiB"]


LONG = "partition dirichlet, alpha 0.1, mu 0.01"


@pytest.mark.parametrize("columns", ["single", "double"])
def test_a_table_fits_its_column(columns: Columns, compared: Comparison, tmp_path: Path) -> None:
    groups = [
        Group(f"{LONG} {number}", group.runs, {}) for number, group in enumerate(compared.groups)
    ]
    pairs = [(later, earlier) for earlier, later in itertools.combinations(groups, 2)]
    for target in (None, 0.5):
        table = latex_table(groups, target, pairs, columns)
        assert table.count(r"\begin") == table.count(r"\end")
        if TEX is not None:
            width, room, log = _compiled(TEX, table, columns, tmp_path)
            assert width <= room, log


def _compiled(
    tex: str, table: str, columns: Columns, folder: Path
) -> tuple[float, float, Sequence[str]]:
    """Compile a table; return its width, that of its room in points, and the log."""
    room = r"\columnwidth" if columns == "single" else r"\textwidth"
    (folder / "table.tex").write_text(table)
    (folder / "paper.tex").write_text(
        "\\documentclass[twocolumn]{article}\n\\usepackage{booktabs}\n"
        "\\setlength{\\textwidth}{496pt}\\setlength{\\columnsep}{18pt}\n"
        "\\begin{document}\\newsavebox{\\made}\\sbox{\\made}{\\input{table}}\n"
        f"\\typeout{{WIDTHS \\the\\wd\\made\\space \\the{room}}}\n"
        "\\usebox{\\made}\\end{document}\n"
    )
    done = subprocess.run(
        [tex, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    log = done.stdout.splitlines()
    assert done.returncode == 0, log[-20:]
    (widths,) = (line.split()[1:] for line in log if line.startswith("WIDTHS "))
    made, given = (float(one.removesuffix("pt")) for one in widths)
    return made, given, log[-20:]
