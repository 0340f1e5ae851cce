"""Pages of reports and outputs of commands show the same as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fedmx.golden.pages import written
from tests.fedmx.golden.write import EVERY_PAGE, FOLDER


def test_every_file_is_a_page() -> None:
    files = {path.stem for path in (FOLDER / "pages").iterdir()}
    assert files == {page.__name__ for page in EVERY_PAGE}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.__name__)
def test_a_page_shows_the_same_as_before(page: Callable[[Path], str], tmp_path: Path) -> None:
    """Where a page is meant to change, `write.py` renews the files."""
    golden = (FOLDER / "pages" / f"{page.__name__}.txt").read_text(encoding="utf-8")
    assert written(page, tmp_path).splitlines() == golden.splitlines()
