"""What docs/papers.md and docs/papers say comes from the records, and its commands can be run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedmx import Experiment, RunFolder
from tests.experiments.made_records import record

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments"
GROUPS = [
    name
    for path in sorted(FOLDER.glob("papers/*/cells.yaml"))
    for name in yaml.safe_load(path.read_text())
]


@pytest.fixture
def rows_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Returns the rows of a table of these runs, by group or of the table's own."""

    def rows(runs: dict[str, Any], group: str = "knapsack-norms", **tree: Any) -> list[Any]:
        import tables
        import texts

        for module in (tables, texts):
            monkeypatch.setattr(module, "load", lambda one: runs.get(one, runs))
        names = {"document": "d", "name": "n", "group": group, "what": "w"}
        return tables.Table.parse({**names, **tree}).rows()  # type: ignore[no-any-return]

    return rows


@pytest.mark.parametrize("group", GROUPS)
def test_a_cell_is_an_experiment(group: str) -> None:
    from cells import cells

    chosen = cells([group])
    assert chosen
    assert len({cell.path for cell in chosen}) == len(chosen)
    for cell in chosen:
        experiment = Experiment.read(FOLDER / cell.file, [f"seed={cell.seed}", *cell.overrides])
        assert experiment.seed == cell.seed


@pytest.mark.parametrize("name", ["cells.yaml", "figures.yaml"])
def test_no_group_or_figure_has_the_name_of_another_documents(name: str) -> None:
    from cells import DOCUMENTS, parsed

    names = [one for document in parsed(name) for one in document]
    assert len(names) == len(set(names))
    folders = sorted(path.parent.name for path in FOLDER.glob(f"papers/*/{name}"))
    assert sorted(DOCUMENTS) == folders


def test_cells_come_by_seed_and_then_as_they_are_named() -> None:
    from cells import cells

    chosen = cells(["stc-mnist/stc-lr0.1-*", "thesis-2nn-cohorts/B10-C1-*"])
    assert [cell.path for cell in chosen] == [
        f"{path}-s{seed}"
        for seed in (1, 2, 3)
        for path in ("stc-mnist/stc-lr0.1", "thesis-2nn-cohorts/B10-C1")
    ]


def test_a_cell_without_a_seed_is_the_cell_with_all_seeds() -> None:
    from cells import cells

    chosen = cells(["thesis-2nn-cohorts/B10-C1", "stc-mnist/stc-lr0.1-s2"])
    assert [cell.path.rpartition("/")[2] for cell in chosen] == [
        "B10-C1-s1", "B10-C1-s2", "stc-lr0.1-s2", "B10-C1-s3",
    ]  # fmt: skip


def test_a_name_that_no_cell_has_is_refused_beside_those_that_some_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import run

    with pytest.raises(SystemExit):
        run.main(["stc-mnist/stc-lr0.1", "stc-mnist/stc-lr0.2", "--list"])
    out, error = capsys.readouterr()
    assert not out
    assert error.endswith("no cell matches 'stc-mnist/stc-lr0.2'; run.py --list shows all\n")


def test_the_pages_have_the_tables_that_the_records_give() -> None:
    from cells import DOCUMENTS
    from tables import pages

    made = list(pages())
    assert len(made) == 1 + 2 * len(DOCUMENTS)
    for path, text in made:
        assert text == path.read_text(), f"{path.name}; run: python experiments/tables.py"


def test_the_main_claims_of_every_document_stand_before_its_rows() -> None:
    from summaries import claims
    from tables import PAGE, tables

    lines = PAGE.read_text().partition("The rows, document by document:")[0].splitlines()
    for document in {table.document for table in tables()}:
        own = [one for one in claims() if one.document == document]
        assert own
        assert len(own) == sum(line.startswith(f"| {document} | ") for line in lines)


def test_no_verdict_is_written_by_hand() -> None:
    from cells import parsed

    claims = [
        claim
        for name in ("tables.yaml", "summary.yaml")
        for document in parsed(name)
        for table in (document if isinstance(document, list) else [document])
        for claim in table.get("claims", ())
    ]
    assert len(claims) > 50
    assert {key for claim in claims for key in claim} <= {
        *("claim", "ours", "here", "holds", "rows", "reason", "hours"),
    }
    for claim in claims:
        assert "holds" in claim or "rows" in claim or "hours" in claim, claim
        assert "holds" in claim or "rows" in claim or "{" not in claim.get("ours", ""), claim


@pytest.mark.parametrize(
    ("criterion", "expected"),
    [
        ("{largest last accuracy %} > {random last accuracy %}", True),
        ("{largest last accuracy %} < {random last accuracy %}", False),
        ("{largest last accuracy %} > {random last accuracy %} >= 60", True),
        ("{largest last accuracy %} > {random last accuracy %} > 60", False),
        ("{largest last accuracy %} ~ 90.9", True),
        ("{largest last accuracy %} ~ 91.1", False),
        ("{largest last accuracy %} <= 1.5 * {random last accuracy %}", True),
        ("{largest first accuracy rounds 90} ~ 2", True),
        ("{random first accuracy rounds 90} > {largest first accuracy rounds 90}", True),
        ("{random last@9 accuracy %} > 1", True),
    ],
)
def test_a_comparison_of_records_decides_a_claim(
    criterion: str, expected: bool, rows_of: Callable[..., list[Any]]
) -> None:
    ended = replace(record(accuracy=[0.5, 0.6]), reason="all rounds were run")
    runs = {"largest-s1": replace(ended, columns=record(accuracy=[0.5, 0.9]).columns)}
    claim = {"claim": "c", "ours": "o", "holds": [criterion]}
    (row,) = rows_of({**runs, "random-s1": ended}, claims=[claim])
    assert row.verdict == ("within" if expected else "outside")
    (row,) = rows_of({**runs, "random-s1": record(accuracy=[0.5, 0.6])}, claims=[claim])
    if "random" in criterion:
        assert row.verdict == "open"


def all_claims() -> list[tuple[str, Any]]:
    """Each claim that comparisons decide, and the group of its table."""
    trees = [
        yaml.safe_load(path.read_text())
        for name in ("tables", "summary")
        for path in sorted(FOLDER.glob(f"papers/*/{name}.yaml"))
    ]
    tables = [table for tree in trees for table in (tree if isinstance(tree, list) else [tree])]
    claims = [(one.get("group", ""), claim) for one in tables for claim in one.get("claims", ())]
    return [(group, claim) for group, claim in claims if claim.get("holds")]


NAN = float("nan")
SHARES = [[2 + 0.3 / at**speed for at in range(1, 10)] for speed in (1, 1.5)]
"""Losses of models that learn the labels' shares alone, so that their accuracy stays."""


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([[2.3] * 9], id="a constant"),
        pytest.param(SHARES, id="the labels' shares, the last ones faster"),
        pytest.param(SHARES[::-1], id="the labels' shares, the first ones faster"),
        pytest.param([[NAN] * 9], id="NaN"),
        pytest.param([[2.3, *[NAN] * 8]], id="then NaN"),
    ],
)
def test_models_that_do_not_learn_fulfil_no_claim(
    losses: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import texts
    from cells import cells
    from criteria import verdicts

    def learns_nothing(path: str, loss: list[float]) -> Any:
        accuracy = [0.755 if "sentiment" in path else 0.1] * 9
        columns: dict[str, list[Any]] = {
            **dict.fromkeys(("accuracy", "client_accuracy_mean"), accuracy),
            **dict.fromkeys(("loss", "train_loss"), loss),
            "client_accuracy_variance": [0.01] * 9,
            **{name: [10] * 9 for name in ("updates", "up_bytes", "down_bytes")},
            **{name: list(range(1, 10)) for name in ("clock_s", "exchanges")},
        }
        return replace(record(**columns), reason="all rounds were run")

    def load(group: str) -> dict[str, Any]:
        chosen = sorted(cells([group]), key=lambda cell: cell.name)
        place = len(chosen) / len(losses)
        return {
            cell.name: learns_nothing(cell.path, losses[int(at // place)])
            for at, cell in enumerate(chosen)
        }

    monkeypatch.setattr(texts, "load", load)
    claims = all_claims()
    assert len(claims) > 50
    for group, claim in claims:
        assert not all(verdicts(claim["holds"], texts.Numbers(group))), claim["claim"]


def test_one_other_target_explains_cells_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    import tables
    from tables import Table

    runs = {"fedsgd-iid-E1-B10-s1": record(accuracy=[0.4, 0.97, 0.98, 0.98, 0.99])}
    monkeypatch.setattr(tables, "load", lambda group: runs)
    tree = {"document": "d", "name": "n", "group": "thesis-lenet-unpadded", "what": "w"}
    tree |= {"measure": {"target": 0.99}, "paper": {"fedsgd-iid-E1-B10": 2}}
    for other, count_as in (
        (0.97, "outside, explained by another target"),
        (0.98, "outside, without a reason"),
        (None, "outside, without a reason"),
    ):
        table = Table.parse({**tree, "other_target": other})
        (row,) = table.rows()
        assert row.count_as == count_as
        assert table.explained(row) == ("; within to 97 %" if other == 0.97 else "")


def test_all_records_are_of_cells_and_small() -> None:
    from cells import cells
    from records import RECORDS, load

    paths = {cell.path for cell in cells()}
    for path in RECORDS.glob("*.jsonl.xz"):
        group = path.name.removesuffix(".jsonl.xz")
        assert {f"{group}/{name}" for name in load(group)} <= paths
    assert sum(path.stat().st_size for path in RECORDS.glob("*")) <= 5e6


def test_every_figure_that_is_drawn_is_on_the_page_and_can_be_drawn_anew() -> None:
    from cells import parsed
    from tables import FOLDER

    known = {name for one in parsed("figures.yaml") for name in one}
    pages = "".join(path.read_text() for path in FOLDER.glob("*.md"))
    for path in FOLDER.glob("*.svg"):
        assert path.stem in known
        assert f"]({path.name})" in pages


def test_a_reason_counts_only_if_there_are_records_of_what_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tables
    from tables import Reason, Table

    runs = {"thesis-2nn-draws": {f"{name}-s1": record(f"{name}-s1") for name in ("B10", "B50")}}
    monkeypatch.setattr(tables, "load", lambda group: runs.get(group, {}))
    assert Reason("the seed", ("thesis-2nn-draws/B10-*",)).is_shown
    assert not Reason("the seed", ("thesis-2nn-draws/B10-*", "niid")).is_shown
    with pytest.raises(LookupError, match="no cell matches 'nowhere"):
        _ = Reason("the seed", ("nowhere",)).is_shown
    with pytest.raises(AssertionError, match=r"there is no nowhere\.py"):
        _ = Reason("the channel", ("nowhere.py",)).is_shown
    channel = Reason("the channel", ("thesis-2nn-draws/B10-*", "knapsack_channel.py"))
    assert channel.is_shown
    assert channel.commands() == (
        '`python experiments/run.py "thesis-2nn-draws/B10-*"` and '
        "`python experiments/knapsack_channel.py`"
    )

    runs["thesis-2nn-draws"]["B10-s1"] = record(accuracy=[0.9] * 5)
    far = {"document": "d", "name": "n", "group": "thesis-2nn-draws", "what": "w"}
    far |= {"measure": {"target": 0.97}, "paper": {"B10": 2}}
    for shown_by, count_as in (("thesis-2nn-draws", "with a reason"), ("niid", "without a reason")):
        reasons = {"B*": {"text": "the seed", "shown_by": [shown_by]}}
        (row,) = Table.parse({**far, "reasons": reasons}).rows()
        assert row.count_as == f"outside, {count_as}"


def test_a_claim_says_of_how_many_runs_and_rounds_its_figures_are(
    rows_of: Callable[..., list[Any]],
) -> None:
    runs = {"largest-s1": record(accuracy=[0.5, 0.9]), "random-s1": record(accuracy=[0.5])}
    ours = "{largest last accuracy %}, {largest last@1 accuracy %}, {random best accuracy %}"
    (row,) = rows_of(runs, claims=[{"claim": "c", "ours": ours}])
    assert row.ours == "90.00 (in 2 of 200 rounds), 50.00, 50.00 (in 1 of 200 rounds)"
    assert (row.seeds, row.rounds, row.hours) == ("2 of 6", "3", 1.0)


def test_a_claim_has_the_reason_that_records_show(monkeypatch: pytest.MonkeyPatch) -> None:
    import tables
    import texts
    from tables import Table, _section, _section_of_rows

    runs = {"knapsack-norms": {"largest-s1": record(accuracy=[0.5])}}
    for module in (tables, texts):
        monkeypatch.setattr(module, "load", lambda group: runs.get(group, {}))
    claim = {"claim": "MNIST: it learns", "ours": "{largest last@1 accuracy %}"}
    claim["holds"] = ["{largest last@1 accuracy %} > 90"]
    tree = {"document": "d", "name": "n", "group": "knapsack-norms", "what": "w"}
    for shown_by, count_as in (("knapsack-norms", "with a reason"), ("niid", "without a reason")):
        claims = [{**claim, "reason": {"text": "one round", "shown_by": [shown_by]}}]
        table = Table.parse({**tree, "claims": claims})
        (row,) = table.rows()
        assert row.count_as == f"outside, {count_as}"
        shown = "\nOutside, MNIST: one round\n" in _section(table, "knapsack")
        command = "\nMNIST: shown by `python experiments/run.py" in _section_of_rows(table)
        assert shown == command
        assert shown == (row.reason is not None)


@pytest.mark.parametrize(
    ("what", "text"),
    [("best", "70.00, last round 10.00"), ("last", "10.00, best 70.00")],
)
def test_best_and_last_accuracy_are_shown_together(
    what: str, text: str, rows_of: Callable[..., list[Any]]
) -> None:
    runs = {"q1-s1": record(accuracy=[0.7, 0.1])}
    measure = {"what": what, "unit": "%"}
    (row,) = rows_of(runs, "q-synthetic", measure=measure, paper={"q1": 90})
    assert row.ours == f"{text}, not finished"
    assert row.rounds == "2 of 6,000"


def test_a_row_says_how_many_seeds_have_missed_the_target(
    rows_of: Callable[..., list[Any]],
) -> None:
    missed = replace(record(accuracy=[0.4]), reason="the one round was run")
    cell = "fedsgd-iid-E1-B10"
    runs = {f"{cell}-s1": record(accuracy=[0.4, 0.99]), f"{cell}-s2": missed}
    paper = {"measure": {"target": 0.98}, "paper": {cell: 3}}
    (row,) = rows_of(runs, "thesis-lenet-unpadded", **paper)
    assert row.ours == "2; not reached with 1 of 2 seeds"
    runs[f"{cell}-s3"] = record(accuracy=[0.4, 0.4, 0.99])
    (row,) = rows_of(runs, "thesis-lenet-unpadded", **paper)
    assert row.ours == "2 to 3; not reached with 1 of 3 seeds"
    runs.update({f"{cell}-s{seed}": missed for seed in (1, 3)})
    (row,) = rows_of(runs, "thesis-lenet-unpadded", **paper)
    assert (row.ours, row.verdict) == ("not reached in 1 round", "outside")


def test_a_record_is_written_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import records

    monkeypatch.setattr(records, "RECORDS", tmp_path)
    kept = {"a-s1": record(accuracy=[0.5]), "b-s1": record("b-s1", accuracy=[0.25, 0.5])}
    records.save("group", kept)
    assert records.load("group") == kept
    assert records.load("another") == {}


def test_a_curve_joins_its_seeds_by_round() -> None:
    from figures import Panel

    panel = Panel("", "group", ["*"], over="clock")
    fast = record(accuracy=[0.1, None, 0.3], clock_s=[3600.0, 7200.0, 10800.0])
    slow = record(accuracy=[0.2], clock_s=[36000.0])
    at, values = panel.by_round([fast, slow])
    assert at.tolist()[0] == [1, 3]
    assert at[1, 0] == 10
    assert values.tolist()[0] == [0.1, 0.3]
    assert values[1, 0] == 0.2
    assert np.isnan(at[1, 1])
    assert np.isnan(values[1, 1])


def test_curves_are_in_the_order_of_the_figures_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    import figures
    from figures import Panel

    kept = {f"{cell}-s1": record(accuracy=[0.1, 0.2]) for cell in ("E10", "E5", "a", "b")}
    kept |= {"c-s1": record(accuracy=[0.1]), "b-s2": record(accuracy=[0.3, 0.4])}
    monkeypatch.setattr(figures, "load", lambda group: kept)
    curves = Panel("", "group", ["b", "E*", "*"]).curves()
    assert list(curves) == ["b", "E5", "E10", "a"], "c has one point, which is no curve"
    assert curves["b"] == [kept["b-s1"], kept["b-s2"]]


def test_a_run_with_other_settings_is_not_taken_for_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import folders
    from cells import cells

    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (cell,) = cells(["q-synthetic/q1-s1"])
    before = Experiment.read(
        FOLDER / cell.file, [*cell.overrides, "seed=1", "compute.train.learning_rate=0.05"]
    )
    now = Experiment.read(FOLDER / cell.file, [*cell.overrides, "seed=1", "run.checkpoint.every=7"])

    def made(one: Experiment) -> RunFolder:
        facts = {"digest": one.digest()}
        return RunFolder.create(tmp_path / cell.group, cell.name, one.to_yaml(), facts)

    made(before)
    assert folders.run_folder(cell) is None
    wanted = made(now)
    made(before)
    (tmp_path / cell.group / f"{cell.name}-20991231-235959").mkdir()  # no run
    found = folders.run_folder(cell)
    assert found is not None
    assert found.path == wanted.path


def test_a_run_that_has_diverged_has_ended(tmp_path: Path) -> None:
    from folders import end_of

    text = (FOLDER / "synthetic.yaml").read_text()
    folder = RunFolder.create(tmp_path, "diverged", text, {"digest": "0"})
    folder.finish("failed", "TooFewUpdates: round 99: no update arrived")
    assert end_of(folder) == "TooFewUpdates: round 99: no update arrived"
    folder.finish("failed", "OSError: no space left on device")
    assert end_of(folder) is None
    folder.finish("done", "all rounds were run")
    assert end_of(folder) == "all rounds were run"


def test_open_cells_are_those_without_an_ended_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import run

    ended = replace(record(accuracy=[0.9]), reason="all 2000 rounds were run")
    kept = {"q0-s1": ended, "q1-s1": record(accuracy=[0.5] * 10)}
    monkeypatch.setattr(run, "load", lambda group: kept)
    chosen = ["q-synthetic/q[012]-s1", "--list"]
    run.main(chosen)
    every = capsys.readouterr().out.splitlines()
    run.main([*chosen, "--open"])
    assert capsys.readouterr().out.splitlines() == every[1:]
    assert [line.partition(":")[0] for line in every] == [f"q-synthetic/q{q}-s1" for q in (0, 1, 2)]
    assert [line.partition("  # ")[2] for line in every] == [
        "all 2000 rounds were run",
        "10 of 2,000 rounds, 180.0 s each",
        "not begun",
    ]


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(FOLDER / "run.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)


def test_a_cell_gives_way_when_its_time_is_up_and_goes_on_later(
    data_root: Path, tmp_path: Path
) -> None:
    cell = "thesis-2nn-cohorts/B100-C0-s1"
    log = tmp_path / "runs" / "papers" / f"{cell}.log"
    with running(tmp_path, cell, "--cell-minutes", "0.001") as first:
        out = first.communicate(timeout=100)[0]
    assert f"{cell}: interrupted" in out, log.read_text()
    before = len(log.read_text())  # on a slow machine the first one may come to a round, too
    with running(tmp_path, cell) as second:
        ended = None
        while not re.search(r"round \d+/", log.read_text()[before:]):
            assert ended is None, f"{second.communicate()[0]}\n{log.read_text()}"
            ended = second.poll()
            time.sleep(0.05)
        second.send_signal(signal.SIGINT)
        out = second.communicate(timeout=100)[0]
    assert f"{cell}: interrupted" in out, log.read_text()
    assert second.returncode == 0
    assert len(list(log.parent.glob("*/experiment.yaml"))) == 1


def test_a_cell_that_failed_shows_in_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    for code, how in ((0, "done"), (2, "failed")):
        monkeypatch.setattr(run, "FEDMX", [sys.executable, "-c", f"raise SystemExit({code})"])
        with pytest.raises(SystemExit) as ended:
            run.main(["q-synthetic/q1-s1"])
        assert ended.value.code == min(code, 1)
        assert f"q-synthetic/q1-s1: {how}" in capsys.readouterr().out


def test_each_reading_of_the_knapsack_papers_devices_has_a_line() -> None:
    command = [sys.executable, str(FOLDER / "knapsack_channel.py"), "--draws", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = [line.split(" | ") for line in output.stdout.splitlines()[2:]]
    assert len(lines) == 4 * 7
    errors = [float(line[5]) for line in lines]
    assert errors == sorted(errors)
    assert all(0 < float(count) <= 20 for line in lines for count in line[3].split(", "))
    online = [line[6].partition(" (L0 ")[0].split(", ") for line in lines]
    assert all(0 < float(count) <= 20 for counts in online for count in counts)
    assert all(0 <= float(line[7].rstrip("| ")) < 2 for line in lines)
