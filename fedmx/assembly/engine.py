"""The engine of an experiment, with its model."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedmx.assembly.data import ExperimentData
from fedmx.components.build import bind, resolve
from fedmx.components.catalogue import CATALOGUE
from fedmx.components.component import Component
from fedmx.components.settings import signature_of
from fedmx.experiment import Experiment
from layers.compute import bits
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models.zoo import ZOOS


def engine_of(experiment: Experiment, data: ExperimentData) -> MXNetEngine:
    """Return the engine of an experiment.

    Args:
        experiment: the experiment.
        data: its data, which the model's inputs and outputs fit.

    Raises:
        ComputeError: this process runs on other instructions than the experiment.
    """
    bits.require(experiment.compute.bits)
    shape, classes = data.shape, data.classes
    reference = experiment.compute.model
    zoo = reference.name.partition(":")[0]
    if zoo in ZOOS and reference.object is None and "classes" not in reference.settings:
        settings = {**reference.settings, "classes": classes}
        reference = dataclasses.replace(reference, settings=settings)
    provided: dict[str, Any] = {"classes": classes}
    if takes_words(experiment.compute.model):
        provided["words"] = data.words
    make = bind("model", reference, CATALOGUE["models"], **provided)
    return MXNetEngine(make, shape, classes, seed=experiment.seed)


def takes_words(model: Component) -> bool:
    """Return whether a model takes the words of the data set's tokens."""
    return "words" in signature_of(resolve("model", model, CATALOGUE["models"])).settings
