"""The first metric of a run stands for its model wherever one number does, up or down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmx import Experiment, FedmxError, RunFolder, Server, simulate, sweep
from fedmx.callbacks.builtin import EarlyStopping, KeepBest, ProgressBar
from fedmx.cli.main import app
from fedmx.cli.rounds import ProgressLine
from fedmx.quantities import metrics_in
from fedmx.report import Comparison
from fedmx.report.curves import measures_of
from fedmx.report.results import verdict
from fedmx.report.summary import RunSummary
from tests.fedmx.kinds import TREE
from tests.fedmx.recorded_runs import record


class Kind(NamedTuple):
    """A kind of run, and what is said of it.

    Attributes:
        key: the first metric.
        name: the name of this metric in an experiment file.
        sign: 1 if a higher value is better, otherwise -1.
        target: a value that is reached after the first round.
        never: a value that is never reached.
        target_text: the target as a text.
        panels: the curves.
    """

    key: str
    name: str
    sign: int
    target: float
    never: float
    target_text: str
    panels: list[str]


KINDS = {
    "regression": Kind("rmse", "rmse", -1, 0.5, 0.001, "rmse 0.5", ["rmse", "loss", "r2"]),
    "classes": Kind(
        "macro_f1", "macro-f1", 1, 0.25, 0.999, "macro f1 25 %", ["macro_f1", "loss", "accuracy"]
    ),
}


def tree_of(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "classes":
        evaluate = {"metrics": ["confusion-matrix", "macro-f1"]}
        slow = {"batch_size": 20, "learning_rate": 0.005}
        compute = {**TREE["compute"], "train": slow, "evaluate": evaluate}
        return {**TREE, "rounds": 4, "compute": compute}
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(200, 4)).astype(np.float32)
    y = (x @ drawn.normal(size=4)).astype(np.float32)
    np.savez(folder / "d.npz", x_train=x[:150], y_train=y[:150], x_test=x[150:], y_test=y[150:])
    compute = {
        "model": "logistic",
        "data": {"name": "arrays", "path": str(folder / "d.npz")},
        "train": {"learning_rate": 0.05},
    }
    return {"rounds": 4, "clients": 3, "compute": compute}


@pytest.fixture(scope="module", params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """One recorded run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for kind in KINDS:
        (folder / kind).mkdir()
        found[kind] = record(Experiment(**tree_of(kind, folder)), folder / kind)
    return found


@pytest.fixture
def of(kind: str) -> Kind:
    return KINDS[kind]


@pytest.fixture
def run(kind: str, runs: dict[str, RunFolder]) -> RunFolder:
    return runs[kind]


def simulation(kind: str, folder: Path, **changed: Any) -> Server:
    return simulate(Experiment(**{**tree_of(kind, folder), **changed}))


def values(run: RunFolder, of: Kind) -> list[float]:
    return [one[of.key] for one in run.rounds()]


def best_of(run: RunFolder, of: Kind) -> tuple[float, int]:
    best = max(values(run, of), key=lambda value: of.sign * value)
    return best, values(run, of).index(best) + 1


def test_a_run_has_its_best_value_and_the_rounds_to_a_target(run: RunFolder, of: Kind) -> None:
    compared = Comparison.of([run], of.target)
    (row,) = compared.table()
    assert row["metric"] == of.key
    assert (row["best"], row["best_round"]) == best_of(run, of)
    reached = [of.sign * value >= of.sign * of.target for value in values(run, of)]
    assert row["rounds_to_target"] == reached.index(True) + 1 > 1
    assert row[of.key] == values(run, of)[-1]
    assert Comparison.of([run], of.never).table()[0]["rounds_to_target"] is None


def test_the_verdict_and_the_tables_name_it(run: RunFolder, of: Kind, tmp_path: Path) -> None:
    summary = RunSummary.of(run)
    assert verdict(summary).words.startswith(f"best {summary.metric.words} ")
    assert verdict(summary, of.target).words.startswith(f"target {of.target_text} after ")
    assert verdict(summary, of.never).words.startswith("target ")
    compared = Comparison.of([run], of.target)
    compared.write_latex(tmp_path / "table.tex")
    text = (tmp_path / "table.tex").read_text()
    assert text.count(summary.metric.words) >= 2
    assert "acc." not in text


def test_each_metric_that_is_a_number_has_a_curve(run: RunFolder, of: Kind, tmp_path: Path) -> None:
    summary = RunSummary.of(run)
    assert [one.key for one in measures_of([summary])][: len(of.panels)] == of.panels
    compared = Comparison.of([run], of.target)
    assert of.key in compared.curves()[0]
    axes = compared.plot()
    assert summary.metric.words in axes.get_ylabel()
    (level,) = (line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 2)
    assert level == pytest.approx(of.target * (100 if summary.metric.unit == "share" else 1))


def test_commands_on_runs_show_it(run: RunFolder, of: Kind) -> None:
    words = metrics_in(run.facts)[0].words
    listed = CliRunner().invoke(app, ["runs", str(run.path.parent), "--json"])
    (row,) = json.loads(listed.stdout)
    assert (row["metric"], row["best"]) == (of.key, best_of(run, of)[0])
    for command in (["runs", str(run.path.parent)], ["status", str(run.path)]):
        assert f"{words} " in CliRunner().invoke(app, command).stdout
    status = json.loads(CliRunner().invoke(app, ["status", str(run.path), "--json"]).stdout)
    assert status["metrics"][0]["key"] == of.key
    assert status[of.key] == values(run, of)[-1]
    shown = CliRunner().invoke(app, ["report", str(run.path), "--target", str(of.target)])
    assert f"To {of.target_text}: rounds" in " ".join(shown.stdout.split())
    page = run.report_path.read_text()
    assert f"Final {words}" in page
    assert "confusion" not in page or of.key == "macro_f1"


def test_a_target_is_checked_by_its_unit(run: RunFolder, of: Kind) -> None:
    if metrics_in(run.facts)[0].unit == "share":
        with pytest.raises(FedmxError, match="macro f1 from 0 to 1"):
            Comparison.of([run], 95)
    else:
        assert Comparison.of([run], 95).table()[0]["rounds_to_target"] == 1


def test_what_is_seen_of_a_server_is_of_it(kind: str, of: Kind, tmp_path: Path) -> None:
    server = simulation(kind, tmp_path)
    line = ProgressLine(server.last_round)
    folder = RunFolder.create(
        tmp_path, "run", "rounds: 4\n", {"metrics": [one.fact() for one in server.quantities]}
    )
    words = server.quantities[0].words
    for round in server:
        line.add_round(round, folder)
        assert f"{words} " in repr(round)
    assert line.parts()[1].startswith(f"{words} ")
    assert f"{words} " in repr(server)
    assert f">{words}<" in server._repr_html_()
    assert words in server.plot().get_ylabel()


def test_a_run_ends_at_a_value_of_any_metric(kind: str, of: Kind, tmp_path: Path) -> None:
    ended = simulation(kind, tmp_path, stop={"metric": {of.name: of.target}})
    *before, last = [one.evaluation.values[of.key] for one in ended]
    assert of.sign * last >= of.sign * of.target > of.sign * max(before, key=lambda y: of.sign * y)
    assert ended.reason.endswith(f"reached {of.target}")
    with pytest.raises(FedmxError, match="unknown metric 'f2'.*" + of.name):
        simulation(kind, tmp_path, stop={"metric": {"f2": 1.0}})


def test_a_stop_is_the_target_of_a_report(kind: str, of: Kind, tmp_path: Path) -> None:
    tree = {**tree_of(kind, tmp_path), "stop": {"metric": {of.name: of.target}}}
    run = record(Experiment(**tree), tmp_path)
    assert Comparison.of([run]).target == of.target


@pytest.mark.parametrize("stops", ["patience", "early stopping"])
def test_patience_is_with_it(kind: str, stops: str, of: Kind, tmp_path: Path) -> None:
    tree = tree_of(kind, tmp_path)
    train = {**tree["compute"]["train"], "learning_rate": 1e-9}  # no round is better
    given = {**tree, "rounds": 9, "compute": {**tree["compute"], "train": train}}
    patience = {"stop": {"patience": 2}} if stops == "patience" else {}
    callbacks = [] if patience else [EarlyStopping(2, least=1e-3)]
    server = simulate(Experiment(**given, **patience), callbacks=callbacks)
    assert len(list(server)) < 9
    assert " is no better than " in server.reason
    assert server.reason.startswith(server.quantities[0].words) or server.reason.startswith(of.key)


def test_callbacks_keep_the_best_and_show_the_last(
    kind: str, of: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper = KeepBest(tmp_path / "best.safetensors")
    given = Experiment(**tree_of(kind, tmp_path))
    with simulate(given, callbacks=[keeper, ProgressBar()]) as server:
        found = [one.evaluation.values[of.key] for one in server]
    best = max(found, key=lambda value: of.sign * value)
    assert (keeper.best_value, keeper.best_round) == (best, found.index(best) + 1)
    assert json.loads((tmp_path / "best.json").read_text())[of.key] == best
    assert f"{server.quantities[0].words} " in capsys.readouterr().err


def test_a_sweep_compares_by_it(tmp_path: Path) -> None:
    tree = tree_of("regression", tmp_path)
    vary = {"compute.train.learning_rate": [0.05, 0.0005]}
    given = Experiment(**tree, run={"folder": str(tmp_path / "runs")})
    result = sweep(given, vary, seeds=2, target=0.5)
    rows = result.table()
    assert {row["metric"] for row in rows} == {"rmse"}
    assert result.best == min(row["best"] for row in rows)
    assert [row["rounds_to_target"] is None for row in rows] == [False, False, True, True]
    (pair,) = (one for one in result.statistics()["comparisons"] if one["metric"] == "best")
    assert pair["difference"] > 0
    assert pair["improvement"] == 0.0, "a higher error is not better"
    listed = CliRunner().invoke(app, ["runs", str(tmp_path / "runs"), "--json"])
    (row,) = json.loads(listed.stdout)
    assert (row["metric"], row["best"]) == ("rmse", result.best)
    shown = CliRunner().invoke(app, ["report", str(result.folder.path)])
    assert "best rmse: each cell over its seeds" in shown.stdout


def test_runs_are_compared_by_the_metric_that_they_have_in_common(
    runs: dict[str, RunFolder], tmp_path: Path
) -> None:
    accuracy = record(Experiment(**TREE), tmp_path)
    compared = Comparison.of([runs["classes"], accuracy])
    assert {row["metric"] for row in compared.table()} == {"accuracy"}
    with pytest.raises(FedmxError, match="no metric in common, but rmse and accuracy"):
        Comparison.of([runs["regression"], accuracy])


def test_a_metric_that_is_not_a_number_leaves_the_round_evaluated(tmp_path: Path) -> None:
    facts = {"metrics": [{"key": "rmse", "label": "", "unit": "number", "better": "lower"}]}
    run = RunFolder.create(tmp_path, "run", "rounds: 3\n", facts)
    for number, value in enumerate((0.5, float("nan"), float("inf")), 1):
        traffic = {"up_bytes": 1, "down_bytes": 1, "seconds": 1.0}
        run.append_round(
            {"round": number, "accuracy": None, "loss": value, "rmse": value, **traffic}
        )
    run.finish("done")
    summary = RunSummary.of(run)
    assert (summary.best_value, summary.rounds, len(summary.evaluated)) == (0.5, 3, 3)
    assert verdict(summary).words.startswith(
        "the loss is not a number since round 2; best rmse 0.5"
    )
