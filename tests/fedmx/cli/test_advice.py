"""An error names the command that helps: one that is of use to a run in its state."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.fedmx.command_line import fedmx
from tests.fedmx.kinds import TREE
from tests.fedmx.recorded_runs import run_of


def test_a_run_whose_report_alone_failed_is_not_to_be_resumed(tmp_path: Path) -> None:
    run = run_of(tmp_path, rounds=1)
    (run.path / "status.json").unlink()
    run.report_path.unlink()
    run.report_path.mkdir()  # no page can be written there
    done = fedmx("resume", run.path, cwd=tmp_path, page=True)
    assert run.status == "done"
    assert done.code == 2, done
    assert done.err.splitlines()[-1].endswith(f"; continue with: fedmx report {run.path}")
    run.report_path.rmdir()
    assert fedmx("report", run.path, cwd=tmp_path).code == 0
    assert run.report_path.is_file()


HALF = """
from dataclasses import dataclass, replace
from fedmx import ClientSide, Hook

@dataclass(frozen=True)
class Half(Hook):
    sizes: tuple[int, int] = (1, 2)
    class Client(ClientSide):
        def send(self, update, context):
            if context.round == self.hook.sizes[0]:
                update.delta *= 0.5
            return update
"""


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("logic.hooks=['half:Half']", "replace(update, delta="),
        ("logic.hooks=[{name: 'half:Half', sizes: [3]}]", "sizes: must be a list of 2 numbers"),
        ("compute.data=text.npz", "{name: arrays, path: text.npz}"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(override: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(HALF)
    (tmp_path / "e.yaml").write_text(json.dumps(TREE))
    done = fedmx("run", "e.yaml", "--own-modules", "--set", override, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err.splitlines()[-1]
    assert "resume" not in done.err


def test_code_that_fails_in_a_later_round_is_to_be_corrected_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(HALF)
    logic = {"hooks": [{"name": "half:Half", "sizes": [2, 2]}]}
    (tmp_path / "e.yaml").write_text(json.dumps({**TREE, "logic": logic}))
    done = fedmx("run", "e.yaml", "--own-modules", cwd=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert "correct the code, then continue with: fedmx resume" in done.err.splitlines()[-1]
    (tmp_path / "half.py").write_text(HALF.replace("update.delta *= 0.5", "pass"))
    assert fedmx("resume", run, "--own-modules", cwd=tmp_path).code == 0


def test_a_finished_run_is_told_how_to_get_further_rounds(tmp_path: Path) -> None:
    run = run_of(tmp_path, rounds=2)
    words = shlex.split(fedmx("resume", run.path, cwd=tmp_path).error_text.rpartition(": ")[2])
    assert words == ["fedmx", "fork", str(run.path), "--round", "2", "--set", "rounds=4"]
    assert fedmx(*words[1:], cwd=tmp_path).code == 0
