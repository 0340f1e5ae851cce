"""Every notebook runs from top to bottom, and is kept with what it shows."""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.timeout(900)  # many processes on a busy machine

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PATIENCE_S = 870  # a sweep starts a process for each of its runs
SHOWN = {"first_idea": 5, "compare_over_seeds": 3, "own_data_and_model": 2}
"""How many cells show a figure, a table or an object, at the least."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def rich_among(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    return [one for one in outputs if {"text/html", "image/png"} & set(one.get("data", ()))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_promises(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = read(path)
    client = nbclient.NotebookClient(
        notebook, timeout=PATIENCE_S, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()  # raises the error of a cell that fails
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    assert len(rich_among(outputs)) >= SHOWN[path.stem]
    if path.stem == "first_idea":
        said = "".join(one["text"] for one in outputs if one.get("name") == "stdout")
        assert "since 4 evaluations" in said, "the last run stops early"
    assert [
        one["text"] for one in outputs if one.get("name") == "stderr" and "Warn" in one["text"]
    ] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_what_it_shows(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [one for cell in cells for one in cell.outputs]
    assert len(rich_among(outputs)) >= SHOWN[path.stem]
    assert any("image/png" in one.get("data", ()) for one in outputs), "a figure"
    assert not any(one.output_type == "error" for one in outputs)
    for folder in ("/home/", "/tmp/", "/work/", "/root/"):
        assert folder not in path.read_text("utf-8"), "a path of somebody's machine"
    assert path.stat().st_size < 100_000


def test_there_is_a_notebook_for_each_of_the_first_three_questions() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
