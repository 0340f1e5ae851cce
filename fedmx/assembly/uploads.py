"""How simulated uploads share the channel: by the experiment, or by the selector's needs."""

from __future__ import annotations

from fedmx.components.build import build
from fedmx.components.catalogue import CATALOGUE
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from layers.logic import Selector
from layers.logic.clock.uploads import Parallel, Uploads


def build_uploads(reference: Component | None, selector: Selector) -> Uploads:
    """Return the experiment's upload model; the default is what the selector needs.

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
