"""The names that an experiment file can use, by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from layers.compute.data.datasets import DATASETS, FEDERATED
from layers.compute.data.partitions import PARTITIONS
from layers.compute.engines.mxnet.model_zoo import ZOOS
from layers.compute.engines.mxnet.models import MODELS
from layers.compute.schedule import SCHEDULES
from layers.logic import AGGREGATORS, HOOKS, PRESETS, SELECTORS
from layers.logic.clock import AVAILABILITIES, DEVICES, UPLOADS

CATALOGUE: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "presets": PRESETS,
    "selectors": SELECTORS,
    "aggregators": AGGREGATORS,
    "hooks": HOOKS,
    "models": {**MODELS, **{f"{zoo}:": model for zoo, model in ZOOS.items()}},
    "data": {**DATASETS, **FEDERATED},
    "partitions": PARTITIONS,
    "schedules": SCHEDULES,
    "devices": DEVICES,
    "uploads": UPLOADS,
    "availabilities": AVAILABILITIES,
}
