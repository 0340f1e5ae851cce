"""Generated files say of each component what the component itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedmx.parts
from fedmx import ExperimentError
from fedmx.components.build import resolve
from fedmx.components.catalogue import KINDS, components, read_catalogue
from fedmx.components.component import Component
from tools.algorithm_pages import ALGORITHMS, FOLDER, names_of
from tools.generate import GENERATED


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_a_generated_file_is_current(path: Path) -> None:
    text = path.read_text("utf-8")
    assert GENERATED[path](text) == text, "run: make generate"


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
    made = {one for named in components().values() for one in named.values()}
    assert {getattr(fedmx.parts, name) for name in dir(fedmx.parts)} == made
    with pytest.raises(AttributeError, match=r"'fedmx\.parts' has no attribute 'krum'"):
        _ = fedmx.parts.krum
