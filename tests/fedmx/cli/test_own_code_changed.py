"""A run's own code that is edited between two commands is told, and never mixed in."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fedmx.report import Comparison
from tests.fedmx.cli.gated_run import GATE, place, run_in
from tests.fedmx.command_line import ended, fedmx, started, wait_until

# Of another length: Python may take the compiled copy of a file that was edited within a second.
EDITED = GATE.replace("(total / 2)", "(total / 4.0)")


def run_with(folder: Path, code: str, *more: str) -> None:
    (folder / "gate.py").write_text(code)
    result = fedmx("run", "small.yaml", "--own-modules", *more, cwd=folder)
    assert result.code == 0, result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = place(tmp_path)
    (folder / "open").touch()
    return folder


def test_a_run_that_goes_on_with_edited_code_says_so_and_makes_no_pack(folder: Path) -> None:
    (folder / "open").unlink()
    with started("run", "small.yaml", "--own-modules", cwd=folder) as process:
        wait_until((folder / "waiting").exists, process)
        process.send_signal(signal.SIGINT)
        assert ended(process).code == 130
    (folder / "open").touch()
    run = run_in(folder)
    assert list(json.loads((run / "run.json").read_text())["facts"]["code"]) == ["gate.py"]
    (folder / "gate.py").write_text(EDITED)
    result = fedmx("resume", run, "--own-modules", cwd=folder)
    assert result.code == 0
    assert result.err.splitlines()[0].startswith("gate.py: changed since the run began")
    packed = fedmx("pack", run, "-o", "a.fedmx", "--own-modules", cwd=folder)
    assert "gate.py: not as when the run began, so that the pack would not" in packed.error_text
    assert not (folder / "a.fedmx").exists()
    replayed = fedmx("replay", run, "--own-modules", cwd=folder)
    assert "warning" in replayed.err
    assert "gate.py: not as in the run" in replayed.err


CHOOSY = """
from layers.logic import Selector


class Choosy(Selector):
    def select(self, round):
        return [0, 3]
"""


def test_where_edited_code_selects_others_diff_says_that_the_code_differs(folder: Path) -> None:
    choosy, chosen = folder / "choosy.py", ("--set", "logic.selector='choosy:Choosy'")
    choosy.write_text(CHOOSY)
    for code in (GATE, EDITED):
        run_with(folder, code, *chosen)
    choosy.write_text(CHOOSY.replace("[0, 3]", "[1, 2]") + "# edited")
    result = fedmx("diff", *sorted((folder / "runs").iterdir()), "--own-modules", cwd=folder)
    assert result.code == 3
    assert "round 1: the updates of clients 0, 3 differ" in result.out
    assert "it ran other code" in result.out


def test_a_run_that_goes_on_with_the_same_code_says_nothing(folder: Path) -> None:
    run_with(folder, GATE)
    run = run_in(folder)
    assert "gate.py" not in fedmx("replay", run, "--own-modules", cwd=folder).err
    assert fedmx("pack", run, "-o", "a.fedmx", "--own-modules", cwd=folder).code == 0


def test_seeds_of_edited_code_are_not_of_one_group(folder: Path) -> None:
    for seed, code in (("1", GATE), ("2", GATE), ("3", EDITED)):
        run_with(folder, code, "--set", f"seed={seed}")
    groups = Comparison.read(sorted((folder / "runs").iterdir())).groups
    assert sorted(len(group.runs) for group in groups) == [1, 2]
    assert all("code gate.py" in group.settings for group in groups)
