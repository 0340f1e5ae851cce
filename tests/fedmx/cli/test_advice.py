"""An error names the command that helps: one that is of use to a run in its state."""

from __future__ import annotations

from pathlib import Path

from tests.fedmx.command_line import fedmx
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
