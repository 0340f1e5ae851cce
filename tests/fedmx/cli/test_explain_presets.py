"""`fedmx explain` tells each setting of a preset once, and an experiment file can give each."""

from __future__ import annotations

import pytest

from fedmx import ExperimentError
from fedmx.cli.names import explanation
from fedmx.components.build import build
from fedmx.components.component import Component
from layers.logic import PRESETS


def test_a_preset_is_explained_with_its_own_settings_and_with_what_it_fixes() -> None:
    lines = explanation("astraea")
    own = lines.index("settings, besides those of its parts below:")
    assert lines[own + 1] == "  rebalance = null: a number or null"
    above = next(place for place, line in enumerate(lines) if line.startswith("    above = null"))
    assert any("`rebalance` sets it, in the selector" in one for one in lines[above : above + 6])


def test_a_preset_without_settings_of_its_own_refers_to_its_parts() -> None:
    lines = explanation("fedadam")
    assert "settings: those of its parts" in lines
    assert [line for line in lines if line.startswith("    beta1 = ")] == [
        "    beta1 = 0.9: a number from 0 to below 1"
    ]


def test_an_experiment_file_gives_a_preset_the_settings_of_its_parts() -> None:
    settings = {"beta1": 0.5, "count": 4, "weights": "samples"}
    preset = build("preset", Component.of({"name": "fedadam", **settings}))
    assert preset == PRESETS["fedadam"](**settings)
    with pytest.raises(ExperimentError, match="did you mean 'beta2'"):
        build("preset", Component.of({"name": "fedadam", "beta3": 0.5}))
    with pytest.raises(ExperimentError, match="beta1"):
        build("preset", Component.of({"name": "fedadam", "beta1": "half"}))
