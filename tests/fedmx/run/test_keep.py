"""Which checkpoints are kept: the newest, and those of a cadence."""

from __future__ import annotations

import pytest

from fedmx import Experiment, recorded, simulate
from fedmx.run import CheckpointError, RunFolder
from fedmx.run.checkpoint import Keep
from tests.fedmx.recorded_runs import TREE, run_of


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Keep(1), [23]),
        (Keep(3), [23, 22, 21]),
        (Keep(2, every=10), [23, 22, 20, 10]),
        (Keep(5, every=10), [23, 22, 21, 20, 19, 10]),
        (Keep(1, every=1), list(range(23, 0, -1))),
    ],
)
def test_the_newest_and_those_of_the_cadence_are_kept(
    tmp_path, keep: Keep, expected: list[int]
) -> None:
    folder = RunFolder.create(tmp_path, "kept", "", {})
    for number in range(1, 24):
        folder.save_checkpoint(number, {"round": number}, keep)
    assert folder.checkpoint_rounds == expected


def test_rounds_of_the_cadence_have_checkpoints_whichever_others_get_one(tmp_path) -> None:
    run = run_of(tmp_path, rounds=9, run={"checkpoint": {"every": 3, "keep": {"every": 4}}})
    assert run.checkpoint_rounds == [9, 8, 6, 4, 3]


def test_each_round_has_a_checkpoint_and_five_are_kept_unless_told_otherwise(tmp_path) -> None:
    given = Experiment(**{**TREE, "rounds": 7, "run": {}})
    folder = RunFolder.create(tmp_path, "kept", given.to_yaml(), {})
    assert len(list(recorded(simulate(given), folder))) == 7
    assert folder.checkpoint_rounds == [7, 6, 5, 4, 3]


def test_none_at_all_cannot_be_asked_for() -> None:
    for wrong in ({"last": 0}, {"every": 0}):
        with pytest.raises(CheckpointError, match="1 or more"):
            Keep(**wrong)


@pytest.mark.parametrize(
    ("written", "last", "every"),
    [("3", 3, None), ("{every: 10}", 5, 10), ("{last: 1, every: 4}", 1, 4)],
)
def test_a_file_gives_a_count_or_a_cadence(written: str, last: int, every: int | None) -> None:
    least = "rounds: 5\nclients: 20\ncompute: {model: lenet5, data: digits}\n"
    keep = Experiment.parse(f"{least}run: {{checkpoint: {{keep: {written}}}}}").run.checkpoint.keep
    assert (keep.last, keep.every) == (last, every)
