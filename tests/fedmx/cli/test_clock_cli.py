"""What a run with simulated devices says of its time, from an example that everybody can run."""

from __future__ import annotations

import re
from pathlib import Path

from fedmx import RunFolder
from tests.fedmx.command_line import ROOT, fedmx


def test_virtual_time_is_shown_as_it_passes_and_at_the_end(tmp_path: Path) -> None:
    words = ("--set", "run.folder=runs", "--set", "rounds=3")
    file = str(ROOT / "examples" / "slow_devices.yaml")
    result = fedmx("run", file, *words, cwd=tmp_path)
    assert result.code == 0, result
    (path,) = (tmp_path / "runs").iterdir()
    records = RunFolder.open(path).rounds()
    ends_s = [record["clock_elapsed_s"] for record in records]
    assert ends_s == sorted(set(ends_s))
    assert all(record["virtual"] and 0 < record["clock_s"] <= 120 for record in records)
    lines = result.err.splitlines()[1:]
    assert len(lines) == 3
    for line, end_s in zip(lines, ends_s, strict=True):
        shown = re.search(r"  virtual time (?:(\d+) min )?([\d.]+) s  up ", line)
        assert shown is not None, line
        assert abs(60 * int(shown[1] or 0) + float(shown[2]) - end_s) <= 0.5
    assert re.match(
        r"all 3 rounds were run: accuracy [\d.]+ %, loss [\d.]+, "
        r"after [\d a-z.]+ of virtual time\n",
        result.out,
    )
    # A deadline by far too short: nothing comes, the model is kept, and time passes all the same.
    result = fedmx("run", file, *words, "--set", "clock.deadline_s=0.1", cwd=tmp_path)
    assert result.code == 0, result
    assert "after 0.300 s of virtual time" in result.out
