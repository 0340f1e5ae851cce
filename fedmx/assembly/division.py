"""Who gets which training samples: hooks, the server, and each client; no sample goes to two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedmx.components.build import build
from fedmx.components.catalogue import CATALOGUE
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from layers.compute.data.datasets import Dataset
from layers.compute.data.partitions import Indices, Labels, Partition, divide
from layers.compute.data.partitions.held_back import HeldBack, hold_back
from layers.logic.seeds import derive


@dataclass(frozen=True)
class Division:
    """How an experiment divides a data set among clients.

    Args:
        partition: the rule.
        seed: of its draws.
    """

    partition: Partition
    seed: int

    @classmethod
    def of(cls, experiment: Experiment) -> Division:
        """Return the division of an experiment.

        Raises:
            ExperimentError: there is no such partition, or its settings are wrong.
        """
        partition = build("partition", experiment.compute.partition, CATALOGUE["partitions"])
        return cls(partition, derive(experiment.seed, "partition"))

    def parts(
        self, dataset: Dataset, clients: int, rows: Indices | None = None
    ) -> tuple[Sequence[Indices], Sequence[Indices]]:
        """Return each client's rows of the training and of the test split; see `divide`."""
        return divide(dataset, self.partition, clients, self.seed, rows)


def held_back_of(
    labels: Labels, shares: Mapping[str, float], held_out: float, seed: int
) -> HeldBack:
    """Return the samples that hooks take out of the training split before it is divided.

    Args:
        labels: of all training samples, (n,).
        shares: the share of them that each asset takes, by its name.
        held_out: the share of them that the server keeps.
        seed: of the experiment.

    Raises:
        ExperimentError: hooks leave no sample to the clients.
    """
    # The purpose "shared" stays as it is: another one would change the draws.
    seeds = derive(seed, "shared"), derive(seed, "held-out")
    held_back = hold_back(labels, shares, held_out, *seeds)
    if held_back.rest is not None and not len(held_back.rest):
        taken = ", ".join(f"asset {name} {share:g}" for name, share in shares.items())
        raise ExperimentError(
            f"logic: hooks take all of the {len(labels)} training samples "
            f"({taken or 'no asset'}, held_out {held_out:g}); leave the clients some"
        )
    return held_back
