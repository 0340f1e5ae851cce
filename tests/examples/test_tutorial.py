"""The tutorial, followed word by word in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.examples.free_port import free_port
from tests.examples.test_docs import blocks, write_files
from tests.fedmx.fork_server import write_program

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"

pytestmark = pytest.mark.timeout(300)  # a dozen runs and five processes, on a busy machine


def test_every_command_of_the_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs)
    folder = tmp_path / "empty"
    folder.mkdir()
    assert [path.name for path in write_files([PAGE], folder)] == ["idea.yaml", "trimmed.py"]
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    port = free_port()
    said = []
    for _, script in blocks(PAGE, "sh"):
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script.replace("7070", str(port))],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        said.append(done.stdout + done.stderr)
    run, settings, report, sweep, hook, tls = said
    assert "all 8 rounds were run" in run
    assert "all 8 rounds were run" in settings
    assert (folder / "partition.png").exists()
    assert "To 80 %" in report
    assert re.search(r"^scaffold +fedavg +3 +\S+ \[\S+, \S+\] +\S+ %", sweep, re.MULTILINE)
    assert "report: report.html" in hook
    assert "the same bits" in tls.splitlines()
    assert len(list(folder.glob("runs/idea-sweep-*/*/model.safetensors"))) == 6


def test_the_hook_of_the_tutorial_is_about_ten_lines() -> None:
    ((name, code),) = [one for one in blocks(PAGE, "python") if one[0]]
    body = code[code.index("@dataclass") :]
    assert name == "trimmed.py"
    assert len([line for line in body.splitlines() if line.strip()]) <= 14
