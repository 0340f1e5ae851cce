"""A simulation that is killed in mid-round is resumed and ends in the same bits, of each kind."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from tests.fedmx.command_line import fedmx
from tests.fedmx.kinds import KINDS, TREE

pytestmark = pytest.mark.timeout(300)

HERE = (
    *("round memory", "secure sum", "liars", "loss with a reference", "numpy"),
    *("own head", "nested", "kept state"),
)
TORCH = {**KINDS["numpy"], "compute": {**KINDS["numpy"]["compute"], "engine": "torch"}}


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(KINDS[name], id=name) for name in HERE),
        pytest.param(TORCH, id="torch", marks=pytest.mark.needs_torch),
    ],
)
def test_a_killed_run_is_resumed_and_ends_in_the_same_bits(
    kind: dict[str, Any], kind_folder: Path, tmp_path: Path
) -> None:
    if kind is TORCH:
        pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    for module in kind_folder.glob("*.py"):
        shutil.copy(module, tmp_path)
    tree = {**TREE, **kind}
    logic = {**tree.get("logic", {}), "selector": {"name": "uniform", "fraction": 1.0}}
    flag = tmp_path / "killed"
    kills = {"name": "kind_parts:Kills", "file": str(flag)}
    logic["hooks"] = [*logic.get("hooks", []), kills]
    (tmp_path / "kinds.yaml").write_text(json.dumps({**tree, "logic": logic}))
    run = ("run", "kinds.yaml", "--own-modules", "--set")
    assert fedmx(*run, "run.folder=killed_runs", cwd=tmp_path).code == -signal.SIGKILL
    assert flag.exists()
    (killed,) = (tmp_path / "killed_runs").iterdir()
    resumed = fedmx("resume", killed, "--own-modules", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    whole = fedmx(*run, "run.folder=whole_runs", cwd=tmp_path)
    assert whole.code == 0, whole.err
    (undisturbed,) = (tmp_path / "whole_runs").iterdir()
    # The chain has every record, the hash of every update and of every model in it.
    chains = [[one["chain"] for one in RunFolder.open(of).rounds()] for of in (killed, undisturbed)]
    assert len(chains[0]) == TREE["rounds"]
    assert chains[0] == chains[1]
