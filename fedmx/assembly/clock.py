"""The virtual clock of an experiment's simulation: its devices, uploads and availability."""

from __future__ import annotations

from fedmx.components.build import build
from fedmx.components.catalogue import CATALOGUE
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from layers.logic import LogicError, Selector
from layers.logic.clock import VirtualClock
from layers.logic.clock.uploads import Parallel, Uploads
from layers.logic.seeds import derive


def clock_of(experiment: Experiment, devices: Component, selector: Selector) -> VirtualClock:
    """Return the virtual clock of an experiment.

    Args:
        experiment: the experiment.
        devices: the component at `clock.devices`.
        selector: the selector of the experiment.

    Raises:
        ExperimentError: the devices, the uploads or the availability have wrong settings.
    """
    clock = experiment.clock
    try:
        return VirtualClock(
            experiment.clients,
            build("devices", devices, CATALOGUE["devices"]),
            derive(experiment.seed, "clock"),
            _uploads(clock.uploads, selector),
            build("availability", clock.availability, CATALOGUE["availabilities"]),
            clock.dropout,
        )
    except LogicError as error:
        raise ExperimentError(f"clock: {error}") from error


def _uploads(reference: Component | None, selector: Selector) -> Uploads:
    """Return how uploads share the channel; the default is what the selector needs.

    Args:
        reference: the component at `clock.uploads`; None: there is none.
        selector: the selector of the experiment.

    Raises:
        ExperimentError: it cannot be made, or is parallel while the selector needs serial uploads.
    """
    if reference is None:
        name = "serial" if selector.serial_uploads else "parallel"
        reference = Component(name, where=("clock", "uploads"))
    uploads: Uploads = build("uploads", reference, CATALOGUE["uploads"])
    if selector.serial_uploads and isinstance(uploads, Parallel):
        text = (
            f"{type(selector).__name__} assumes one upload at a time, not "
            f"{reference.name} uploads; leave it out, or write clock: {{uploads: serial}}"
        )
        raise ExperimentError(reference.source.problem(reference.where, text))
    return uploads
