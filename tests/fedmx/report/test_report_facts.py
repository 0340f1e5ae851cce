"""What a report says of versions, machines and clients is written for a reader."""

from __future__ import annotations

from pathlib import Path

from fedmx import RunFolder
from tests.fedmx.report.test_report import EXPERIMENT, page_of, record

FACTS = {
    "builds": {"mxnet": "b3578efd", "numpy": "8297b419"},
    "code": {"hooks.py": "39577e58b81874be0b782f2cc7dbeb7f"},
    "shape": [1, 28, 28],
    "chance": 0.10140845070422536,
}


def run(parent: Path, seed: int = 1) -> RunFolder:
    facts = {"seed": seed, "mode": "simulation", "started": "2026-11-22T12:52:14+00:00", **FACTS}
    folder = RunFolder.create(parent, "digits", EXPERIMENT, facts)
    folder.append_round(record(1, 0.5))
    return folder


def test_facts_are_written_as_a_reader_wants_them(tmp_path: Path) -> None:
    page = page_of(run(tmp_path))
    for text in (
        "2026-11-22 12:52:14 UTC",
        "mxnet b3578efd, numpy 8297b419",
        "hooks.py 39577e58b81874be",
        "1 x 28 x 28",
        "10.14 %",
    ):
        assert f"<td>{text}</td>" in page


def test_a_row_for_each_of_many_runs_is_headed_run(tmp_path: Path) -> None:
    page = page_of(*(run(tmp_path / str(seed), seed) for seed in range(1, 7)))
    facts = page[page.index("<h2>Run on</h2>") :]
    assert facts[: facts.index("</thead>")].count(">run<") == 1
    assert ">differs<" not in facts


def test_clients_without_an_accepted_update_are_told_in_words(tmp_path: Path) -> None:
    folder = run(tmp_path)
    folder.append_clients([{"round": 1, "client": 3, "status": "rejected", "reason": "not finite"}])
    page = page_of(folder)
    assert "clients had an accepted update." in page
    assert "between 0 and 0" not in page
