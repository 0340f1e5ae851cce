"""The figure of a partition: numbers are in its cells where there is room for them."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from fedmx.report.partition import table
from fedmx.report.partition_figure import _draw


def numbers(clients: int, classes: int) -> list[str]:
    counts = np.zeros((clients, classes), np.int64)
    counts[0, 0], counts[-1, -1], counts[0, -1] = 5, 1234, 617
    drawn = _draw(counts, "a title")
    return sorted(text.get_text() for axes in drawn.axes for text in axes.texts)


@pytest.mark.parametrize(("clients", "classes"), [(2, 2), (12, 2), (2, 12), (12, 12)])
def test_a_small_figure_has_the_number_of_each_cell_that_is_not_empty(clients, classes) -> None:
    assert numbers(clients, classes) == ["1,234", "5", "617"]


@pytest.mark.parametrize(("clients", "classes"), [(13, 12), (12, 13), (13, 2), (2, 13), (40, 40)])
def test_a_large_figure_has_no_numbers(clients, classes) -> None:
    assert numbers(clients, classes) == []


def test_the_figure_says_what_is_on_its_axes() -> None:
    drawn = _draw(np.array([[1, 2], [3, 4]]), "a title")
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
