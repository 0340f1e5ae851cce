"""The optimisers of local training that an experiment can name.

To add one, write its class with a `name` and add it to `OPTIMISERS`. An optimiser computes on flat
float32 vectors with numpy, so that it is the same on every engine.
"""

from __future__ import annotations

from layers.compute.optimisers.adaptive import Adagrad, Adam, AdamW, RmsProp
from layers.compute.optimisers.optimiser import Optimiser
from layers.compute.optimisers.sgd import Sgd

__all__ = ["OPTIMISERS", "Optimiser", "Sgd"]

OPTIMISERS: dict[str, type[Optimiser]] = {
    one.name: one for one in (Sgd, Adam, AdamW, Adagrad, RmsProp)
}
"""All optimisers by name."""
