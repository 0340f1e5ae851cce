"""What leaves the server of a private run: one rule for packs, trackers and TensorBoard.

Epsilon covers the models and what follows from them. Records say who took part, and how many;
so do sizes, times and the hashes of updates. They stay with the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmx.experiment import Experiment
from fedmx.quantities import QUANTITIES

PUBLISHED = frozenset(one.key for one in QUANTITIES if one.published)


def is_confidential(experiment: Experiment | None, deployed: bool) -> bool:
    """Return whether a run's records stay with its server: those of a private deployment.

    In a simulation, everything follows from the public seed.
    """
    return deployed and experiment is not None and experiment.privacy is not None


def published(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may leave of a round's record whose run is confidential."""
    return {key: value for key, value in record.items() if key in PUBLISHED}
