"""The verdict names the outcome of a run, and never shows a failure as a success."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from fedmx.report import write_report
from fedmx.report.groups import Group
from fedmx.report.results import group_verdict, verdict
from fedmx.report.summary import RunSummary

pytestmark = pytest.mark.usefixtures("no_curves")

FACTS = {"seed": 1, "mode": "simulation", "chance": 0.1}
RISEN = [2.0, 1.0, 0.5, 0.4, 0.6, 0.7, 0.8]


BEST_30 = "best 30.00 % after 1 round, 1.00 MiB up and down"


def run_of(
    parent: Path,
    accuracies: list[float | None],
    losses: list[float | None] | None = None,
    *,
    name: str = "run",
    facts: dict[str, Any] | None = None,
    status: str = "done",
) -> RunFolder:
    run = RunFolder.create(parent, name, "rounds: 9\nseed: 1\n", {**FACTS, **(facts or {})})
    losses = [1 / number for number in range(1, len(accuracies) + 1)] if losses is None else losses
    for number, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), start=1):
        traffic = {"up_bytes": 2**19, "down_bytes": 2**19, "seconds": 1.0}
        run.append_round({"round": number, "accuracy": accuracy, "loss": loss, **traffic})
    if status != "interrupted":  # a run without an ending, as one of a sweep that still runs
        run.finish(status)
    return run


@pytest.mark.parametrize(
    ("accuracies", "losses", "target", "words", "kind"),
    [
        ([0.5, 0.7, 0.8, 0.9], None, 0.8, "target 80 % after 3 rounds, 3.00 MiB", "good"),
        ([0.9], None, 0.8, "target 80 % after 1 round, 1.00 MiB", "good"),
        ([0.5, 0.7, 0.6], None, 0.8, "target 80 % not reached, best 70.00 % after 2", "plain"),
        ([0.5, 0.7, 0.6], None, None, "best 70.00 % after 2 rounds, 2.00 MiB", "plain"),
        ([0.1, 0.11, 0.09], None, None, "never above chance", "bad"),
        ([0.5, 0.7, 0.1, 0.1], None, None, "at chance since round 3; best 70.00 % after 2", "bad"),
        ([0.5, 0.1, 0.1, 0.7], None, None, "best 70.00 % after 4 rounds, 4.00 MiB", "plain"),
        ([0.6] * 7, RISEN, None, "loss rises since round 4; best 60.00 % after 1 round", "plain"),
        ([0.3] * 4, [2.0, 4.0, 9.0, 30.0], None, f"loss rises since round 1; {BEST_30}", "bad"),
        ([0.3, 0.3], [1.0, 9.0], None, f"loss rises since round 1; {BEST_30}", "bad"),
        ([0.3] * 5, [2.0, 1.0, 3.0, 4.0, 9.0], None, f"rises since round 2; {BEST_30}", "bad"),
        ([0.5, 0.3, 0.3], [1.0, None, None], None, "loss is not a number since round 2", "bad"),
        ([0.5, 0.1], None, 0.4, "target 40 % after 1 round", "bad"),
        ([0.5, 0.1], None, 0.4, "; at chance since round 2", "bad"),
        ([None, None], [None, None], None, "no round was evaluated", "plain"),
        ([], [], None, "no round has ended", "plain"),
    ],
)
def test_the_verdict_names_the_outcome_of_a_run(
    tmp_path: Path,
    accuracies: list[float | None],
    losses: list[float | None] | None,
    target: float | None,
    words: str,
    kind: str,
) -> None:
    run = run_of(tmp_path, accuracies, losses)
    found = verdict(RunSummary.of(run), target)
    assert words in found.words
    assert found.kind == kind
    write_report([run], run.report_path, target)
    page = run.report_path.read_text("utf-8")
    assert f'<p class="verdict {kind}">{found.words}</p>' in page
    assert ('class="status done"' in page) == (kind != "bad"), "only a useful model is green"


def test_the_best_round_is_the_first_of_the_highest_accuracy(tmp_path: Path) -> None:
    best = RunSummary.of(run_of(tmp_path, [0.0, 0.5, None, 0.5])).best
    assert (best.round, best.accuracy) == (2, 0.5)


def test_one_bad_round_is_no_trend(tmp_path: Path) -> None:
    losses: list[float | None] = [2.0, 1.0, 0.5, 0.5, 0.5, 0.5, 3.0]
    assert verdict(RunSummary.of(run_of(tmp_path, [0.6] * 7, losses))).words.startswith("best")


def test_chance_is_the_share_of_the_most_frequent_label_if_recorded(tmp_path: Path) -> None:
    accuracies: list[float | None] = [0.8, 0.8]
    assert not verdict(RunSummary.of(run_of(tmp_path, accuracies))).bad
    told = run_of(tmp_path, accuracies, name="told", facts={"chance": 0.79})
    assert verdict(RunSummary.of(told)).words == "never above chance"
    unknown = run_of(tmp_path, [0.1, 0.1], name="unknown", facts={"chance": None})
    assert not verdict(RunSummary.of(unknown)).bad


@pytest.mark.parametrize(
    ("chance", "accuracy", "bad"),
    [(0.1, 0.125, True), (0.1, 0.126, False), (0.5, 0.53, True), (0.5, 0.54, False)],
)
def test_a_model_is_at_chance_up_to_a_small_margin(
    tmp_path: Path, chance: float, accuracy: float, bad: bool
) -> None:
    run = run_of(tmp_path, [accuracy, accuracy], facts={"chance": chance})
    assert (verdict(RunSummary.of(run)).words == "never above chance") == bad


@pytest.mark.parametrize(
    ("losses", "since"),
    [
        ([0.75, 0.5, 0.5, 0.5, 0.625, 0.625, 0.625], 2),
        ([0.75, 0.5, 0.5, 0.5, 0.62, 0.62, 0.62], None),
        ([0.5, 0.625], 1),
        ([0.5, 0.62], None),
        ([0.75, None, 0.5, 0.5, 0.875, 0.875], 3),
        # A single value among the last ones is not their middle.
        ([0.75, 0.5, 0.5, 0.5, 0.875, 0.25, 0.875], 2),
        ([0.75, 0.5, 0.5, 0.5, 0.25, 0.875, 0.875], 5),
        ([0.75, 0.5, 0.5, 0.5, 0.5, 0.5, 0.7, 0.7], 2),  # two of the last three
    ],
)
def test_a_loss_rises_if_its_last_values_are_a_quarter_above_its_lowest(
    tmp_path: Path, losses: list[float | None], since: int | None
) -> None:
    words = verdict(RunSummary.of(run_of(tmp_path, [0.6] * len(losses), losses))).words
    assert words.startswith("best" if since is None else f"loss rises since round {since};")


def test_a_failed_run_names_its_last_round(tmp_path: Path) -> None:
    found = verdict(RunSummary.of(run_of(tmp_path, [0.5, 0.6], status="failed")))
    assert found.words == "failed after 2 rounds; best 60.00 % after 2 rounds, 2.00 MiB up and down"
    assert found.bad


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (0.9, "after 2 of 9 rounds: target 90 % not yet reached, best 60.00 % after 2 rounds"),
        (None, "after 2 of 9 rounds: best 60.00 % after 2 rounds, 2.00 MiB up and down"),
        (0.6, "target 60 % after 2 rounds, 2.00 MiB up and down"),
    ],
)
def test_an_unfinished_run_has_not_missed_its_target(
    tmp_path: Path, target: float | None, words: str
) -> None:
    run = run_of(tmp_path, [0.5, 0.6], status="interrupted")
    assert verdict(RunSummary.of(run), target).words == words
    write_report([run], run.report_path, target)
    page = run.report_path.read_text("utf-8")
    assert "Final" not in page
    assert "Accuracy so far" in page
    assert ("not reached" in page) is False


def test_the_verdict_of_a_group_counts_its_seeds(tmp_path: Path) -> None:
    def group(*runs: list[float | None]) -> Group:
        found = [RunSummary.of(run_of(tmp_path, one, name=f"r{n}")) for n, one in enumerate(runs)]
        return Group("fedavg", tuple(found), {})

    fine = group([0.5, 0.8], [0.8], [0.4, 0.5, 0.9])
    found = group_verdict(fine, 0.8)
    assert "after 1 to 3 rounds, 1.00 MiB to 3.00 MiB" in found.words
    assert found.kind == "good"
    assert group_verdict(fine).words == "best 80.00 % to 90.00 %"
    lost = group_verdict(group([0.5, 0.8], [0.8, 0.1, 0.1], [0.1, 0.1]), 0.8)
    for part in ("2 of 3 seeds went wrong", "never above chance", "in 2 of 3 seeds after 1 to 2 "):
        assert part in lost.words
    assert lost.bad
    missed = group([0.5], [0.6])
    assert group_verdict(missed, 0.8).words == "target 80 % not reached in 2 seeds"
    going = replace(missed.runs[0], status="running")
    unfinished = group_verdict(replace(missed, runs=(going, missed.runs[1])), 0.8).words
    assert "1 of 2 seeds has not finished" in unfinished
    assert "not yet reached in 2 seeds" in unfinished
