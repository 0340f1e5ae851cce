"""`fedmx explain` tells each setting of a preset once, and an experiment file can give each."""

from __future__ import annotations

import pytest

from fedmx import ExperimentError
from fedmx.components.build import build
from fedmx.components.component import Component
from layers.logic import PRESETS


def test_an_experiment_file_gives_a_preset_the_settings_of_its_parts() -> None:
    settings = {"beta1": 0.5, "count": 4, "weights": "samples"}
    preset = build("preset", Component.of({"name": "fedadam", **settings}))
    assert preset == PRESETS["fedadam"](**settings)
    with pytest.raises(ExperimentError, match="did you mean 'beta2'"):
        build("preset", Component.of({"name": "fedadam", "beta3": 0.5}))
    with pytest.raises(ExperimentError, match="beta1"):
        build("preset", Component.of({"name": "fedadam", "beta1": "half"}))
