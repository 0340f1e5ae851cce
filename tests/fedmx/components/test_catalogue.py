"""The catalogue file says of each component what the component itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedmx.parts
from fedmx import ExperimentError
from fedmx.components.algorithm_pages import (
    ALGORITHMS,
    FOLDER,
    INDEX,
    names_of,
    with_index,
    with_parts,
)
from fedmx.components.build import resolve
from fedmx.components.catalogue import (
    KINDS,
    PATH,
    STUB,
    catalogue_of_components,
    components,
    read_catalogue,
    stub_of_components,
    write_catalogue,
)
from fedmx.components.component import Component
from fedmx.components.declarations import PAGES, with_tables


def test_the_file_is_current(tmp_path: Path) -> None:
    current = read_catalogue() == catalogue_of_components()
    assert current, "run: python -m fedmx.components.catalogue"
    write_catalogue(tmp_path / "catalogue.json")
    assert (tmp_path / "catalogue.json").read_bytes() == PATH.read_bytes()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_each_page_has_the_declarations_of_all_parts(path: Path) -> None:
    page = path.read_text("utf-8")
    assert with_tables(page, PAGES[path]) == page, "run: python -m fedmx.components.declarations"


def test_the_pages_of_the_algorithms_have_their_parts_and_the_index_has_the_pages() -> None:
    pages = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    for page in pages.values():
        assert with_parts(page) == page, "run: python -m fedmx.components.algorithm_pages"
    index = INDEX.read_text("utf-8")
    assert with_index(index, pages) == index, "run: python -m fedmx.components.algorithm_pages"


def test_each_preset_selector_aggregator_and_hook_has_one_page() -> None:
    told = [name for path in FOLDER.glob("*.md") for name in names_of(path.read_text("utf-8"))]
    assert sorted(told) == sorted({name for kind in ALGORITHMS for name in read_catalogue()[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_components(kind: str) -> None:
    with pytest.raises(ExperimentError, match=f"unknown {kind} 'nope'"):
        resolve(kind, Component("nope"))
    for name in read_catalogue()[KINDS[kind].plural]:
        assert resolve(kind, Component(f"{name}x" if name.endswith(":") else name)) is not None


def test_the_built_in_parts_are_imported_from_one_module() -> None:
    assert STUB.read_text("utf-8") == stub_of_components(), (
        "run: python -m fedmx.components.catalogue"
    )
    made = {one for named in components().values() for one in named.values()}
    assert {getattr(fedmx.parts, name) for name in dir(fedmx.parts)} == made
    with pytest.raises(AttributeError, match=r"'fedmx\.parts' has no attribute 'krum'"):
        _ = fedmx.parts.krum
