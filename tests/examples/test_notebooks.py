"""Every notebook runs from top to bottom, and is kept without what it has put out."""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PATIENCE_S = 100
SHOWN = {"first_idea": 5, "compare_over_seeds": 3, "own_data_and_model": 2}
"""How many cells show a figure, a table or an object, at the least."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


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
    rich = [one for one in outputs if {"text/html", "image/png"} & set(one.get("data", ()))]
    assert len(rich) >= SHOWN[path.stem]
    assert [
        one["text"] for one in outputs if one.get("name") == "stderr" and "Warn" in one["text"]
    ] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_small_and_without_outputs(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.outputs for cell in cells] == [[] for _ in cells]
    assert [cell.execution_count for cell in cells] == [None for _ in cells]
    assert path.stat().st_size < 20_000


def test_there_is_a_notebook_for_each_of_the_first_three_questions() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
