"""A report shows the clusters of a stratified selector with the data of this machine."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedmx import RunFolder
from fedmx.report import strata as figures
from fedmx.report import write_report
from fedmx.report.strata import NoLabels, Strata, draw_labels, draw_points, label_shares, strata_of
from fedmx.report.summary import RunSummary
from fedmx.report.svg import PANEL, QUIET, RUN
from layers.logic.algorithms.fedsso import Clustering, Stratum

EXPERIMENT = """
name: strata
seed: 3
rounds: 5
clients: 10
compute: {model: 2nn, data: digits, partition: one-class}
logic: {preset: fedsso}
"""
CLIENTS = np.arange(10)
LABELS = np.array([0, 0, 1, 1, 2, 2, -1, -1, 1, 0])
POINTS = np.stack([LABELS, CLIENTS], axis=1).astype(np.float64)


def make(
    parent: Path, experiment: str = EXPERIMENT, mode: str = "simulation", **memory: Any
) -> RunFolder:
    run = RunFolder.create(parent, "strata", experiment, {"mode": mode})
    kept = Clustering(CLIENTS, LABELS, np.full(10, 5), POINTS, {"0": Stratum(4, 20)}).memory()
    run.save_checkpoint(1, {"server": {"memory": {"selector": {**kept, **memory}}}})
    return run


def page_of(run: RunFolder) -> str:
    path = run.path / "report.html"
    write_report([run], path)
    return path.read_text(encoding="utf-8")


def test_clusters_are_drawn_beside_the_clients_labels(tmp_path: Path) -> None:
    page = page_of(make(tmp_path))
    assert "3 clusters of 2 to 3 clients each; in none (noise, ✕): 2 of 10 clients" in page
    assert page.count("<figure>") == 2
    assert "left out" not in page
    assert "Labels of the clients' samples, by the experiment's partition</span>" in unescape(page)


@pytest.mark.parametrize("selector", ["my_module:Mine", "uniform"])
def test_clusters_of_a_selector_of_any_name_are_drawn(selector: str, tmp_path: Path) -> None:
    experiment = EXPERIMENT.replace("preset: fedsso", f"selector: '{selector}'")
    assert "3 clusters of 2 to 3 clients each" in page_of(make(tmp_path, experiment))


def test_only_a_checkpoint_with_clusters_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path, "strata", EXPERIMENT, {})
    run.save_checkpoint(1, {"server": {"memory": {"selector": {"kept": np.zeros(3)}}}})
    read = Mock(side_effect=AssertionError)
    monkeypatch.setattr(RunFolder, "latest_checkpoint", read)
    assert strata_of(RunSummary.of(run)) is None
    with pytest.raises(AssertionError):
        strata_of(RunSummary.of(make(tmp_path)))


@pytest.mark.parametrize(
    ("labels", "said"), [([0] * 10, "One cluster of 10 clients"), ([-1] * 10, "No clusters")]
)
def test_one_cluster_or_none_is_said(labels: list[int], said: str, tmp_path: Path) -> None:
    points = np.zeros((10, 2))
    kept = Clustering(CLIENTS, np.array(labels), np.full(10, 5), points, {"0": Stratum(4, 20)})
    assert said in page_of(make(tmp_path, **kept.memory()))


def test_labels_of_other_clients_are_not_shown() -> None:
    with pytest.raises(NoLabels, match="10 clients"):
        label_shares(EXPERIMENT, [0, 10])


def test_labels_that_only_deployed_clients_know_are_not_drawn(tmp_path: Path) -> None:
    page = unescape(page_of(make(tmp_path, mode="server")))
    assert page.count("<figure>") == 1
    assert "label distributions are not drawn: the run was deployed" in page


def test_a_figure_of_some_clients_labels_says_of_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_MAX_BARS", 4)
    page = unescape(page_of(make(tmp_path)))
    assert "by the experiment's partition; 4 of 10 clients</span>" in page


def test_label_shares_follow_the_partition_of_the_experiment() -> None:
    shares = label_shares(EXPERIMENT, [3, 0])
    assert shares.shape == (2, 10)
    assert shares.max(axis=1).tolist() == [1.0, 1.0]  # one class a client
    everyone = label_shares(EXPERIMENT.replace("one-class", "iid"), range(10))
    assert everyone.sum(axis=1) == pytest.approx(1)
    alone = EXPERIMENT.replace("one-class", "iid").replace("clients: 10", "clients: 1442")
    assert np.sort(label_shares(alone, [0, 1441])).tolist() == [[0.0] * 9 + [1.0]] * 2
    whole = np.bincount(load_digits().target) / 1797
    assert np.abs(everyone.mean(axis=0) - whole).max() < 0.03


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("digits", "'never_imported:Data'", "never_imported"),
        ("digits", "femnist", "femnist"),
        ("digits", "nowhere", "nowhere"),
        ("clients: 10", "clients: 5", "5 clients"),
        ("data: digits, ", "", "does not name its data"),
        ("one-class", "[", "does not name its data|partition|experiment"),
    ],
)
def test_without_data_the_report_shows_the_reason_and_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    monkeypatch.delenv("FEDMX_DATA", raising=False)
    monkeypatch.setenv("FEDMX_CACHE", str(tmp_path / "cache"))
    experiment = EXPERIMENT.replace(old, new)
    with pytest.raises(NoLabels, match=why) as caught:
        label_shares(experiment, range(10))
    assert "\n" not in str(caught.value)
    page = page_of(make(tmp_path, experiment))
    assert "label distributions are not drawn" in page
    assert page.count("<figure>") == 1
    assert not (tmp_path / "cache").exists()


def test_user_code_does_not_hide_the_labels() -> None:
    own = EXPERIMENT.replace("2nn", "'never_imported:Net'")
    own = own.replace("{preset: fedsso}", "{preset: fedsso, hooks: ['never_imported:Hook']}")
    assert label_shares(own, [0]).sum() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": None},
        {"labels": LABELS[:4]},
        {"labels": POINTS},
        {"points": POINTS[:, :1]},
        {"points": "far"},
        {"strata": None},
        {"strata": {"0": {"clients": 4}}},
        {"clients": CLIENTS[:0], "labels": LABELS[:0], "points": POINTS[:0]},
    ],
)
def test_a_memory_without_clusters_has_no_section(tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = make(tmp_path, **wrong)
    assert strata_of(RunSummary.of(run)) is None
    assert "Clusters" not in page_of(run)


def test_a_damaged_or_missing_checkpoint_does_not_stop_a_report(tmp_path: Path) -> None:
    run = make(tmp_path)
    for path in run.checkpoints_path.iterdir():
        path.write_bytes(b"no checkpoint")
    assert "Clusters" not in page_of(run)
    for path in run.checkpoints_path.iterdir():
        path.unlink()
    assert "Clusters" not in page_of(run)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", [[-1, -1], [0, 0], [0, -1], [5, 2]])
def test_few_clients_and_clients_without_a_point_are_drawn(labels: list[int]) -> None:
    points = np.array([[0.0, 1.0], [np.nan, np.nan]])
    strata = Strata(np.array([4, 9]), np.array(labels), points)
    svg, shown = draw_labels(strata, np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert shown == 2
    assert "<svg" in svg
    assert "#0102" not in svg + draw_points(strata)


def test_clients_are_in_the_order_of_their_clusters_with_noise_last(tmp_path: Path) -> None:
    strata = strata_of(RunSummary.of(make(tmp_path)))
    assert strata.clusters == {0: 3, 1: 3, 2: 2}
    assert strata.clients[strata.by_cluster()].tolist() == [0, 1, 9, 2, 3, 8, 4, 5, 6, 7]


def test_more_clients_than_bars_are_sampled_evenly_over_the_clusters() -> None:
    labels = np.repeat(np.arange(50), 40)
    strata = Strata(np.arange(2000), labels, np.zeros((2000, 2)))
    svg, shown = draw_labels(strata, np.full((2000, 62), 1 / 62))
    assert shown == 200
    assert len(svg) < 1_000_000


def drawn_labels(monkeypatch: pytest.MonkeyPatch, labels: list[int], classes: int = 2) -> Any:
    """Return the figure of these clients' labels before it becomes text."""
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "html_of", lambda figure, title: drawn.append(figure))
    number = len(labels)
    strata = Strata(np.arange(number), np.array(labels), np.zeros((number, 2)))
    draw_labels(strata, np.full((number, classes), 1 / classes))
    (figure,) = drawn
    return figure


def test_each_cluster_has_colour_and_number_below_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn_labels(monkeypatch, [7, 7, 3, -1, 7, -1]).axes[0]
    from matplotlib.colors import to_hex

    marks = [
        (bar.get_x(), bar.get_width(), bar.get_y(), bar.get_height(), to_hex(bar.get_facecolor()))
        for container in axes.containers
        for bar in container
    ]
    assert marks == [
        (0, 1, -1.5, -4.5, RUN[0]),
        (1, 3, -1.5, -4.5, RUN[1]),
        (4, 2, -1.5, -4.5, QUIET),
    ]
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert dict(zip(axes.get_xticks(), names, strict=True)) == {0.5: "3", 2.5: "7", 5: "none"}


@pytest.mark.parametrize(
    ("clients", "gaps"), [(1, []), (4, [1, 2, 3]), (60, [*range(1, 60)]), (61, None)]
)
def test_few_bars_have_gaps_between_them(
    monkeypatch: pytest.MonkeyPatch, clients: int, gaps: list[int] | None
) -> None:
    from matplotlib.colors import to_hex

    axes = drawn_labels(monkeypatch, [0] * clients).axes[0]
    if gaps is None:
        assert not axes.collections
    else:
        (lines,) = axes.collections
        assert [line[:, 0].tolist() for line in lines.get_segments()] == [[x, x] for x in gaps]
        assert [to_hex(colour) for colour in lines.get_colors()] == [PANEL]


def test_narrow_clusters_have_a_number_only_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn_labels(monkeypatch, list(range(100))).axes[0]
    shown = [int(text.get_text()) for text in axes.get_xticklabels()]
    # A bar is a hundredth of the width; a number of n digits needs 1.4 (n + 1) bars.
    assert shown == [0, 3, 6, 9, *range(14, 100, 5)]


@pytest.mark.parametrize(("classes", "step"), [(2, 1), (12, 1), (13, 2), (62, 6)])
def test_the_scale_of_labels_has_at_most_twelve_numbers(
    monkeypatch: pytest.MonkeyPatch, classes: int, step: int
) -> None:
    scale = drawn_labels(monkeypatch, [0, 0], classes).axes[1]
    assert list(scale.get_yticks()) == list(range(0, classes, step))
