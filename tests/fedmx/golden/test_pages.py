"""A page shows the same of a run as before: its figures, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fedmx.golden.histories import HISTORIES
from tests.fedmx.golden.pages import PAGES, written
from tests.fedmx.golden.write import FOLDER


@pytest.mark.parametrize("page", [*PAGES, *HISTORIES], ids=lambda page: page.__name__)
def test_a_page_shows_the_same_as_before(page: Callable[[Path], str], tmp_path: Path) -> None:
    """Where a page is meant to change, `write.py` renews the files."""
    golden = (FOLDER / "pages" / f"{page.__name__}.txt").read_text(encoding="utf-8")
    assert written(page, tmp_path).splitlines() == golden.splitlines()
