"""`fedmx fork`: what it prints, what it leaves, and that it can be killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.history import fork
from fedmx.report import write_report
from tests.fedmx.command_line import ended as command_ended
from tests.fedmx.command_line import fedmx, lines_of, started, wait_until
from tests.fedmx.fork.parents import TREE, chain, contents, ended, models
from tests.fedmx.recorded_runs import record

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that keeps the checkpoints of its last rounds alone."""
    given = Experiment(**{**TREE, "rounds": 8, "run": {"checkpoint": {"keep": 2}}})
    return record(given, tmp_path_factory.mktemp("runs"))


def test_it_forks_and_runs_to_the_end_and_says_so(parent: RunFolder, tmp_path: Path) -> None:
    before = contents(parent)
    words = ["--round", "4", "--set", "logic.preset=fedadam", "--set", f"run.folder={tmp_path}"]
    done = fedmx("fork", parent.path, *words, cwd=tmp_path)
    assert done.code == 0, done
    assert f"fork of {parent.name} after round 4" in done.err
    assert "without a memory: Mean, FedAdam." in done.err
    assert "round 5/8" in done.err
    assert "round 4/8" not in done.err
    assert "all 8 rounds were run: accuracy" in done.out
    (path,) = tmp_path.glob("parent-fork-4-*")
    made = RunFolder.open(path)
    assert made.status == "done"
    assert models(made)[:4] == models(parent)[:4]  # of which there was no checkpoint any more
    assert models(made)[4] != models(parent)[4]
    assert contents(parent) == before


def test_a_killed_fork_is_resumed_to_the_same_bits(parent: RunFolder, tmp_path: Path) -> None:
    changed = ["rounds=24", "logic.preset=projected-stc", "compute.evaluate.every=24"]
    words = ["--round", "5", *(word for one in changed for word in ("--set", one))]
    killed = tmp_path / "killed"
    pattern = "killed/*/rounds.jsonl"
    with started(
        "fork", parent.path, *words, "--set", f"run.folder={killed}", cwd=tmp_path
    ) as process:
        wait_until(lambda: len(lines_of(pattern, tmp_path)) > 7, process)
        process.kill()
        command_ended(process)
    (path,) = killed.iterdir()
    assert 7 < len(RunFolder.open(path).rounds()) < 24, "it was killed too late"
    again = fedmx("resume", path, cwd=tmp_path)
    assert again.code == 0, again
    whole = ended(fork(parent, 5, [*changed, f"run.folder={tmp_path / 'whole'}"]))
    assert chain(RunFolder.open(path)) == chain(whole)


def test_the_report_lays_both_futures_over_one_another(parent: RunFolder, tmp_path: Path) -> None:
    made = ended(fork(parent, 4, ["logic.preset=fedadam", f"run.folder={tmp_path}"], [0]))
    write_report([made], made.report_path)
    page = made.report_path.read_text()
    assert "<h2>Fork</h2>" in page
    assert f"This run is a fork of {parent.name}, after round 4." in page
    assert "o exact removal of client 0: the model after round 4 holds what it sent" in page
    assert "dotted: round 4," in page
    for setting in ("logic.preset", "without"):
        assert f'<th scope="row">{setting}</th>' in page
    # A line of each run in each figure, and the mark.
    figure = page[page.index('aria-label="Accuracy against rounds"') :]
    figure = figure[: figure.index("</svg>")]
    assert "var(--run-0)" in figure
    assert "var(--run-1)" in figure
    assert 'aria-label="Accuracy against rounds"' not in figure[10:]


def test_the_report_of_a_fork_does_without_a_run_that_is_gone(tmp_path: Path) -> None:
    run = record(Experiment(**{**TREE, "rounds": 2}), tmp_path / "runs")
    made = ended(fork(run, 1, [f"run.folder={tmp_path / 'forks'}"]))
    run.path.rename(tmp_path / "elsewhere")
    write_report([made], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"This run is a fork of {run.name}, after round 1." in page
    assert "no longer exists" in page
    assert "Accuracy against rounds" in page


def test_a_report_of_several_runs_says_which_are_forks(parent: RunFolder, tmp_path: Path) -> None:
    made = ended(fork(parent, 6, [f"run.folder={tmp_path}"]))
    write_report([parent, made], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"<h2>Fork {made.name}</h2>" in page
    assert "All settings that decide the result are the same." in page


def test_tensorboard_shows_a_fork_from_round_one_on(parent: RunFolder, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = ended(fork(parent, 5, ["compute.train.learning_rate=0.3", f"run.folder={tmp_path}"]))
    events = EventAccumulator(str(made.events_path))
    events.Reload()
    shown = [(one.step, one.value) for one in events.Scalars("accuracy")]
    recorded = [(one["round"], one["accuracy"]) for one in made.rounds()]
    assert [step for step, _ in shown] == [round for round, _ in recorded]
    assert [value for _, value in shown] == pytest.approx([value for _, value in recorded])


def test_rounds_of_the_run_are_replayed_there(parent: RunFolder, tmp_path: Path) -> None:
    from fedmx.history import rerun
    from fedmx.run import RunError

    made = ended(fork(parent, 5, [f"run.folder={tmp_path}"]))
    with pytest.raises(RunError, match="this is a fork, and round 5 is of the run before it"):
        rerun(made, 5)
    with rerun(made, 7) as server:
        assert server.state.round == 6
