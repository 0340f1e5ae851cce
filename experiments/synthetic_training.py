"""A data set for a figure of a paper: synthetic data, evaluated on the training samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layers.compute.data.dataset import Dataset
from layers.compute.data.datasets.synthetic import Synthetic
from layers.compute.data.files import Files


@dataclass(frozen=True)
class OnTraining(Synthetic):
    """`synthetic`, evaluated on the clients' training samples.

    FedProx's figure 1 shows the training loss (Li et al. 2020, section 5).
    """

    def load(self, files: Files) -> Dataset:
        """Return the data set, whose test split is its training split."""
        found = super().load(files)
        return replace(found, test=found.train)
