"""Overrides change one value of an experiment file, and are refused as its text is."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from fedmx import Experiment
from fedmx.experiment import Component
from tests.fedmx.experiment.texts import LEAST, WHOLE, refused


def test_an_override_reaches_into_a_component() -> None:
    experiment = Experiment.parse(
        LEAST,
        "exp.yaml",
        [
            "logic.selector=uniform",
            "logic.selector.fraction=0.2",
            "logic.hooks.0=clip",
            "logic.hooks.0.norm=2",
            'logic.hooks.1={name: "own:Noise", deviation: 1e-3}',
            "compute.partition.alpha=1",
            "compute.normalise.mean=[0.1, 0.2]",
            "compute.normalise.mean.1=0.3",
            "network.tls.ca=a",
            "network.tls={ca: a, certificate: b, key: c}",
            "network.tls.key=k",
        ],
    )
    assert experiment.logic.selector == Component("uniform", {"fraction": 0.2})
    assert experiment.logic.hooks == (
        Component("clip", {"norm": 2}),
        Component("own:Noise", {"deviation": 0.001}),
    )
    assert experiment.compute.partition == Component("iid", {"alpha": 1})
    assert experiment.compute.normalise is not None
    assert experiment.compute.normalise.mean == (0.1, 0.3)
    assert experiment.network.tls is not None
    assert experiment.network.tls.key == Path("k")


def test_an_override_leaves_the_mapping_that_it_was_given_alone() -> None:
    tree = yaml.safe_load(WHOLE)
    before = copy.deepcopy(tree)
    Experiment.from_dict(tree, ["logic.selector.fraction=1", "logic.hooks.1.deviation=3", "seed=4"])
    assert tree == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set 'seed': must be PATH=VALUE"),
        ("=1", "--set '=1': must be PATH=VALUE"),
        ("a..b=1", "--set 'a..b=1': must be PATH=VALUE"),
        ("sed=1", "--set sed: unknown key 'sed'; did you mean 'seed'?"),
        ("logic.selct.x=1", "--set logic.selct: unknown key 'selct'; did you mean 'selector'?"),
        ("fraction=1", "--set fraction: unknown key 'fraction'; the keys here are"),
        (
            "learning_rate=1",
            "--set learning_rate: is not a key here; did you mean compute.train.learning_rate?",
        ),
        ("rounds.x=1", "--set rounds.x: rounds is a single value and has no keys"),
        (
            "logic.selector.x=1",
            "--set logic.selector.x: no component is named yet; set logic.selector=",
        ),
        ("logic.hooks.1=x", "--set logic.hooks.1: logic.hooks has no items; 0 appends one"),
        ("logic.hooks.a=x", "--set logic.hooks.a: logic.hooks has no items; 0 appends one"),
        ("seed=*x", "--set seed: anchors and aliases"),
        ("seed={a: 1", "--set seed: is not YAML"),
        ("seed=-1", "--set seed: must be at least 0, not -1"),
        ("seed=", "--set seed: must be a whole number, not null"),
    ],
)
def test_a_wrong_override_is_told_in_one_line(override: str, message: str) -> None:
    said = refused(LEAST, override)
    assert said.startswith(message)
    assert "\n" not in said
