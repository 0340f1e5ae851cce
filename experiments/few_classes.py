"""A partition for a paper: every client draws one or two classes, and 300 images of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layers.compute.data.partitions.biased import DISTANCES, FEW
from layers.compute.data.partitions.partition import deal_classes

if TYPE_CHECKING:
    from layers.compute.data.partitions.partition import Indices, Labels

IMAGES = 300  # of each class of a client
SHARE = 0.4  # of the clients that are extremely biased
THRESHOLD = 3.0  # the least earth mover's distance from uniform of these


@dataclass(frozen=True)
class FewClasses:
    """Every client has 300 random images of each of its one or two classes.

    FedAIM's text read word by word: a client draws images of n classes, and is extremely biased if
    its labels are far from uniform. Here all clients draw n from 1 and 2; two fifths of them draw
    again until they are extremely biased, and the others until they are not. The images that no
    client drew are not used. If a class has too few images for all that drew it, each has fewer.

    Attributes:
        shared: whether a client draws from all images of a class, so that two clients may have the
            same ones, as the text says; else no image goes to two clients.
    """

    shared: bool = False

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Return each client's indices."""
        classes = int(labels.max()) + 1
        biased = rng.permutation(clients) < round(SHARE * clients)
        held = np.array([_classes(one, classes, rng) for one in biased])
        if self.shared:
            holders = {kind: np.flatnonzero(held[:, kind]).tolist() for kind in range(classes)}
            return deal_classes(labels, holders, clients, rng, IMAGES)
        parts: list[list[Indices]] = [[] for _ in range(clients)]
        for kind in range(classes):
            samples = rng.permutation(np.flatnonzero(labels == kind))
            holders = np.flatnonzero(held[:, kind])
            each = min(IMAGES, len(samples) // max(1, len(holders)))
            for place, client in enumerate(holders):
                parts[client].append(samples[place * each : (place + 1) * each])
        return [np.sort(np.concatenate(part)) for part in parts]


def _classes(biased: bool, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the classes of a client, bool (classes,)."""
    while True:
        drawn = rng.permutation(classes)[: rng.integers(1, FEW + 1)]
        held = np.isin(np.arange(classes), drawn)
        # Rounding may make a distance of 3 slightly smaller.
        if (DISTANCES["emd"](held) + 1e-9 >= THRESHOLD) == biased:
            return held
