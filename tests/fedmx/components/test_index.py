"""The index of the components, which stands for them where they are not imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmx.components.build import resolve
from fedmx.components.catalogue import (
    PATH,
    catalogue_of_components,
    read_catalogue,
    write_catalogue,
)
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment.names import PLACES, check_names


def test_it_says_what_the_components_say() -> None:
    assert read_catalogue() == catalogue_of_components(), (
        "run: python -m fedmx.components.catalogue"
    )


def test_writing_it_gives_the_file_that_is_kept(tmp_path: Path) -> None:
    write_catalogue(tmp_path / "index.json")
    assert (tmp_path / "index.json").read_bytes() == PATH.read_bytes()


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_an_unknown_name_has_the_message_of_the_component_itself(
    place: tuple[str, ...], tmp_path: Path
) -> None:
    _, noun = PLACES[place]
    with pytest.raises(ExperimentError) as slow:
        resolve(noun, Component("nope", where=place))
    tree: object = "nope"
    for key in reversed(place):
        tree = {key: tree}
    path = tmp_path / "one.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(ExperimentError) as quick:
        check_names(path)
    assert str(quick.value) == f"{path}:1: {slow.value}"


@pytest.mark.parametrize(
    "text",
    [
        "compute: {model: lenet5, data: digits}",
        "compute: {model: 'gluon:resnet18_v1', data: 'my.module:load'}",
        "compute: {model: {name: ' lenet5 '}}",
        "compute: 3",
        "compute: {model: [1]}",
        "logic: {hooks: [null, 3, {norm: 1}], preset: null}",
    ],
)
def test_what_it_cannot_judge_is_left_to_the_reader(text: str, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(text, encoding="utf-8")
    check_names(path, ["compute.train.batch_size=3", "x", "a.b.c=1", "logic.hooks.9.name=clip"])
