"""Experiments of every kind are packed, and run again in the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmx.history import pack, verify
from tests.fedmx.kinds import KINDS, TREE
from tests.fedmx.recorded_runs import attacked_run, run_of

BLOBS: dict[str, Any] = {
    "compute": {"model": "logistic", "data": "blobs", "evaluate": {"per_client": False}}
}
# They differ in what a pack holds of them; test_replay.py has every kind.
SEVERAL = {
    "data that come client by client": BLOBS,
    "own head": {**KINDS["own head"], "compute": TREE["compute"]},
    **{
        name: KINDS[name]
        for name in (
            *("tree of noise", "online knapsack", "assets", "batch norm", "numpy"),
            *("ditto", "loss", "liars", "nested"),
        )
    },
}


@pytest.mark.parametrize("kind", SEVERAL)
def test_a_packed_run_ends_in_the_same_bits(kind: str, kind_folder: Path, tmp_path: Path) -> None:
    small = {**TREE, "compute": {**TREE["compute"], "model": "logistic"}}
    folder = run_of(tmp_path, modules=kind_folder, **{**small, **SEVERAL[kind]})
    made = pack(folder, tmp_path / "x.fedmx", modules=None)
    found = verify(tmp_path / "x.fedmx", trust=bool(made.modules))
    assert (found.outcome, found.reason) == ("same bits", "")
    assert found.recorded.model_sha256 == folder.rounds()[-1]["model_sha256"]
    assert set(made.modules) == ({"kind_models.py"} if kind == "batch norm" else set())
    assert bool(made.manifest.buffers) == (kind == "batch norm")


def test_a_run_that_stepped_back_ends_in_the_same_bits(tmp_path: Path) -> None:
    folder = attacked_run(tmp_path, attacked=3, rounds=5, compute=TREE["compute"])
    pack(folder, tmp_path / "x.fedmx", modules=None)
    told: list[int] = []
    found = verify(tmp_path / "x.fedmx", trust=True, on_round=lambda round, _: told.append(round))
    assert (found.outcome, found.reason) == ("same bits", "")
    assert told == [1, 2, 3, 4, 5]
