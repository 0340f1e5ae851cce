"""Writes all generated files anew, or says which are not current: ``make generate``.

python -m tools.generate [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from fedmx.components.catalogue import PATH as CATALOGUE
from fedmx.components.catalogue import read_catalogue
from tools import (
    algorithm_pages,
    argument_types,
    catalogue,
    declarations,
    documents,
    keys_page,
    quantities_page,
)

ROOT = Path(__file__).parents[1]


def _with_parts_and_tables(page: str, path: Path) -> str:
    if path in declarations.PAGES:
        page = declarations.with_tables(page, declarations.PAGES[path])
    return algorithm_pages.with_parts(page)


def _index(page: str) -> str:
    pages = {path.name: path.read_text("utf-8") for path in algorithm_pages.FOLDER.glob("*.md")}
    return algorithm_pages.with_index(page, pages)


GENERATED: Mapping[Path, Callable[[str], str]] = {
    CATALOGUE: lambda _: catalogue.text(),
    ROOT / "fedmx" / "parts.pyi": lambda _: catalogue.stub_of_components(),
    ROOT / "fedmx" / "experiment" / "arguments.pyi": lambda _: argument_types.stub(),
    ROOT / "README.md": documents.with_documents,
    ROOT / "docs" / "experiment-file.md": keys_page.with_lists,
    ROOT / "docs" / "run-folder.md": quantities_page.with_tables,
    ROOT / "docs" / "metrics.md": quantities_page.with_metrics,
    **{
        path: partial(_with_parts_and_tables, path=path)
        for path in sorted({*algorithm_pages.FOLDER.glob("*.md"), *declarations.PAGES})
    },
    algorithm_pages.INDEX: _index,
}
"""Each generated file with what makes its text of the text that it has; later ones read earlier
ones."""


def main() -> int:
    """Write the files that are not current; return 1 if ``--check`` is given and there are some."""
    stale = []
    for path, text_of in GENERATED.items():
        before = path.read_text("utf-8")
        after = text_of(before)
        if after != before:
            stale.append(path)
            if "--check" not in sys.argv[1:]:
                path.write_text(after, encoding="utf-8")
                read_catalogue.cache_clear()
    for path in stale:
        print(path.relative_to(ROOT))
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
