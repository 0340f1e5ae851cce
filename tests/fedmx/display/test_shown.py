"""Objects have a line of text, HTML for notebooks, frames and plots."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import fedmx
from fedmx import Experiment, FedmxError, Round, RunFolder, Server, recorded, simulate
from fedmx.server.evaluation import Evaluation
from layers.extras import install
from layers.logic import RoundReport, Traffic
from layers.logic.core.report import ClientReport

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


def test_the_repr_of_each_object_is_a_short_line(run: Any) -> None:
    simulation, rounds, folder = run
    said = [repr(one) for one in (experiment(), simulation, rounds[-1], rounds[0], folder)]
    said.append(str(experiment()))
    assert all(len(one) < LONGEST and "\n" not in one for one in said)
    assert said[0] == (
        "<Experiment 'shown': rounds 4, clients 4, model logistic, data blobs, partition iid, "
        "preset fedavg, seed 1>"
    )
    accuracy = f"accuracy {100 * rounds[-1].accuracy:.2f} %"
    assert said[1].startswith(f"<Simulation of 'shown': round 4 of 4, {accuracy}, loss ")
    assert said[2].startswith(f"<Round 4: {accuracy}, loss ")
    assert said[3].startswith("<Round 1: updates ")
    assert said[4] == f"<RunFolder {str(folder.path)!r}: done>"


def test_the_html_of_each_object_is_a_table_with_escaped_texts(run: Any) -> None:
    simulation, rounds, folder = run
    for one in (experiment(), simulation, rounds[0], rounds[-1], folder):
        html = one._repr_html_()
        assert html.startswith("<div><strong>")
        assert html.count("<table>") == html.count("</table>") == 1
    hooks = experiment().with_overrides(["logic.hooks=[stc, {name: clip, norm: 2}]"])
    assert cells(hooks)[-2:] == [("hooks", "stc, clip"), ("seed", "1")]
    hostile = experiment().with_overrides(["compute.model='<b>:Net'"])
    assert "<b>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in hostile._repr_html_()


def cells(shown: Any) -> list[tuple[str, str]]:
    """The rows of an object's card, with its heading as the first one."""
    html = shown._repr_html_()
    (heading,) = re.findall(r"<strong>(.*?)</strong>", html)
    return [("", heading), *re.findall(r"<th [^>]*>(.*?)</th><td [^>]*>(.*?)</td>", html)]


MIB = 2**20
ROUNDS = tuple(
    {
        "round": round,
        "accuracy": accuracy,
        "loss": accuracy and 2.5 * (1 - accuracy),
        "up_bytes": round * MIB,
        "down_bytes": 2 * round * MIB,
        "elapsed_s": 30.0 * round,
    }
    for round, accuracy in ((1, 0.25), (2, 0.71236), (3, 0.5), (4, None))
)


def test_a_simulation_shows_its_last_and_its_best_evaluation_and_what_it_has_cost() -> None:
    simulation = simulate(experiment())
    nothing = [("rounds", "0 of 4"), ("bytes", "0 MiB up, 0 MiB down")]
    assert cells(simulation) == [("", "Simulation of &#x27;shown&#x27;"), *nothing]
    simulation.state = replace(simulation.state, round=4)
    simulation.remember(ROUNDS)
    simulation.reason = "all 4 rounds were run"
    assert cells(simulation) == [
        ("", "Simulation of &#x27;shown&#x27;"),
        ("rounds", "4 of 4"),
        ("ended", "all 4 rounds were run"),
        ("accuracy", "50.00 %"),
        ("best", "71.24 % in round 2"),
        ("loss", "1.25"),
        ("bytes", "10.00 MiB up, 20.00 MiB down"),
        ("time", "2 min 0 s"),
    ]
    assert repr(simulation) == (
        "<Simulation of 'shown': round 4 of 4, accuracy 50.00 %, loss 1.25, all 4 rounds were run>"
    )
    simulation.experiment, simulation.reason = None, ""
    assert repr(simulation) == "<Simulation: round 4 of 4, accuracy 50.00 %, loss 1.25>"
    simulation.network.untrusted = True
    assert repr(simulation).startswith("<Server: round 4 of 4")


def test_a_round_shows_its_accuracy_its_updates_and_its_cost() -> None:
    clients = (ClientReport(1, "accepted", tasks=1), ClientReport(2, "lost", tasks=2))
    report = RoundReport(3, 0.1, 2, clients, Traffic(2 * MIB, 3 * MIB))
    cost = [("up", "3.00 MiB"), ("down", "2.00 MiB"), ("time", "1.50 s")]
    evaluated = Round(
        report, Evaluation({"accuracy": 0.71236, "loss": 1.23456}), seconds=1.5, elapsed_s=9.0
    )
    rows = [("accuracy", "71.24 %"), ("loss", "1.235"), ("updates", "1 of 3"), *cost]
    assert cells(evaluated) == [("", "Round 3"), *rows]
    assert repr(evaluated) == f"<Round 3: {', '.join(' '.join(row) for row in rows)}>"
    assert cells(replace(evaluated, evaluation=Evaluation())) == [("", "Round 3"), *rows[2:]]


def test_a_run_folder_shows_how_its_run_is_and_what_is_damaged(run: Any, tmp_path: Path) -> None:
    _, rounds, folder = run
    last = f"{rounds[-1].accuracy:.2%}"
    best = f"{max(one.accuracy for one in rounds if one.accuracy is not None):.2%}"
    assert cells(folder) == [
        ("", f"Run {folder.path}"),
        ("status", "done"),
        ("why", "all 4 rounds were run"),
        ("rounds", "4"),
        ("accuracy", f"{last}, at best {best}"),
        ("report", str(folder.report_path)),
    ]
    new = RunFolder.create(tmp_path, "new", "rounds: 1\n", {})
    new.append_round({"round": 1, "accuracy": None})
    with open(new.path / "rounds.jsonl", "ab") as file:
        file.write(b"{}\n")
    assert cells(new) == [
        ("", f"Run {new.path}"),
        ("status", "interrupted"),
        ("why", "its process ended before the run did"),
        ("rounds", "1"),
        ("damaged", f"{new.path}/rounds.jsonl:2: the line is damaged; it is left out"),
    ]


def test_a_run_without_rounds_is_shown(tmp_path: Path) -> None:
    simulation = simulate(experiment())
    assert repr(simulation) == "<Simulation of 'shown': round 0 of 4>"
    assert "0 of 4" in simulation._repr_html_()
    assert ("rounds", "0") in cells(RunFolder.create(tmp_path, "new", "rounds: 1\n", {}))


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
        with pytest.raises(FedmxError, match=re.escape(install("pandas"))):
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
