"""Objects have a line of text, HTML for notebooks, frames and plots."""

from __future__ import annotations

import sys
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import fedmx
from fedmx import Experiment, FedmxError, Round, RunFolder, Server, recorded, simulate

LONGEST = 200  # characters of a repr


def experiment(name: str = "shown") -> Experiment:
    compute = {"model": "logistic", "data": {"name": "blobs", "tests": 50}}
    return Experiment(name=name, rounds=4, clients=4, compute={**compute, "evaluate": {"every": 2}})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, list[Round], RunFolder]:
    of = experiment()
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), of.name, of.to_yaml(), {})
    simulation = simulate(of)
    return simulation, list(recorded(simulation, folder)), folder


def test_dir_lists_only_public_names() -> None:
    assert dir(fedmx) == fedmx.__all__
    assert [name for name in dir(fedmx) if name.startswith("_")] == ["__version__"]


def test_the_html_of_each_object_is_a_table_with_escaped_texts(run: Any) -> None:
    simulation, rounds, folder = run
    for one in (experiment(), simulation, rounds[0], rounds[-1], folder):
        html = one._repr_html_()
        assert html.startswith("<div><strong>")
        assert html.count("<table>") == html.count("</table>") == 1
        assert len(repr(one)) < LONGEST
        assert "\n" not in repr(one)
    hostile = experiment().with_overrides(["compute.model='<b>:Net'"])
    assert "<b>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in hostile._repr_html_()


def test_a_frame_has_a_row_for_each_round(run: Any) -> None:
    simulation, rounds, folder = run
    frames = simulation.to_pandas(), folder.to_pandas()
    for frame in frames:
        assert list(frame.index) == [1, 2, 3, 4]
        assert frame.index.name == "round"
        assert list(frame["up_bytes"]) == [round.up_bytes for round in rounds]
        assert list(frame["accuracy"].dropna()) == [rounds[1].accuracy, rounds[3].accuracy]
        assert not {"checksum", "chain", "participants"} & set(frame.columns)
    assert list(frames[0].columns) == list(frames[1].columns)


def test_without_pandas_its_package_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for one in (run[0], run[2]):
        with pytest.raises(FedmxError, match=r"fedmx\[pandas"):
            one.to_pandas()


def test_a_plot_draws_the_evaluated_rounds(run: Any) -> None:
    simulation, rounds, _ = run
    axes = Figure().add_subplot()
    assert simulation.plot(axes=axes, label="ours") is axes
    simulation.plot("accuracy", axes=axes, label="again")
    first, second = axes.get_lines()
    assert list(first.get_xdata()) == list(second.get_xdata()) == [2, 4]
    assert list(first.get_ydata()) == [100 * rounds[1].accuracy, 100 * rounds[3].accuracy]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ours", "again"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy, %")


@pytest.mark.parametrize("against", ["rounds", "bytes", "machine time"])
def test_a_plot_has_units_on_its_axes(run: Any, against: str) -> None:
    mpl.use("agg")
    axes = run[0].plot("loss", against)
    assert axes.get_xlabel()
    assert axes.get_ylabel() == "loss"
    assert len(axes.get_lines()[0].get_xdata()) >= 2
    mpl.pyplot.close(axes.figure)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("acuracy",), "measure 'acuracy'.*'accuracy'"),
        (("loss", "byte"), "axis 'byte'.*'bytes'"),
        (("loss", "virtual time"), "loss against virtual time"),
    ],
)
def test_unknown_measures_and_axes_are_named(run: Any, given: tuple[str, ...], said: str) -> None:
    with pytest.raises(FedmxError, match=said):
        run[0].plot(*given)
