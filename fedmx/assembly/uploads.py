"""How simulated uploads share the way to the server: as the experiment says, or as is needed."""

from __future__ import annotations

from fedmx.components.build import build
from fedmx.components.catalogue import CATALOGUE
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from layers.logic import Selector
from layers.logic.clock.uploads import Parallel, Uploads


def build_uploads(reference: Component | None, selector: Selector) -> Uploads:
    """Return the experiment's way of uploading; without one, serial where the selector needs it.

    Args:
        reference: what the experiment says at `clock.uploads`.
        selector: who takes part.

    Raises:
        ExperimentError: it cannot be had, or is parallel where the selector needs it serial.
    """
    if reference is None:
        name = "serial" if selector.serial_uploads else "parallel"
        reference = Component(name, where=("clock", "uploads"))
    uploads: Uploads = build("uploads", reference, CATALOGUE["uploads"])
    if selector.serial_uploads and isinstance(uploads, Parallel):
        text = (
            f"{type(selector).__name__} reckons with one upload at a time, not with "
            f"{reference.name} ones; leave it out, or write clock: {{uploads: serial}}"
        )
        raise ExperimentError(reference.source.problem(reference.where, text))
    return uploads
