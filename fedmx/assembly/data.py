"""The data of an experiment: its data set, and the samples in it as the model takes them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.components.build import build, resolve
from fedmx.errors import ExperimentError
from fedmx.experiment import Experiment
from layers.compute.data.dataset import Normalise, Samples, materialise
from layers.compute.data.datasets import (
    CheckedFederatedData,
    DataError,
    Dataset,
    FederatedData,
    Files,
    Raw,
    as_dataset,
)
from layers.compute.data.datasets.arrays import Arrays
from layers.compute.data.partitions import Indices, Labels, Partition, divide
from layers.compute.data.partitions.held_back import HeldBack, hold_back
from layers.compute.data.partitions.partition import GroupedRows
from layers.compute.errors import NormaliseError
from layers.logic.seeds import derive


@dataclass(frozen=True)
class ExperimentData:
    """The data of one experiment, each part made when it is first needed.

    Args:
        experiment: the experiment.
        files: where data sets are.
        told_shape: shape of one example, if it is known without the data; None: as in them.
        told_classes: number of labels, likewise.
        told_words: the words of the data set's tokens, likewise.
    """

    experiment: Experiment
    files: Files = dataclasses.field(default_factory=Files)
    told_shape: tuple[int, ...] | None = None
    told_classes: int | None = None
    told_words: tuple[str, ...] | None = None

    @cached_property
    def dataset(self) -> Dataset | CheckedFederatedData:
        """The experiment's data set, or data whose samples come client by client.

        Raises:
            ExperimentError: there is no such data set, or its settings are wrong.
            DataError: its files are missing or wrong.
        """
        experiment, reference = self.experiment, self.experiment.compute.data
        given: dict[str, Any] = {}
        # Data that are made or read by client; some of them for all clients at once.
        if hasattr(resolve("data set", reference), "client"):
            given = {"clients": experiment.clients, "seed": derive(experiment.seed, "data")}
        found = build("data set", reference, **given)
        if isinstance(found, Dataset):
            return found
        if isinstance(found, FederatedData):
            self._check_no_partition()
            return CheckedFederatedData.of(found, experiment.clients, reference.name)
        if hasattr(found, "load"):
            return as_dataset(found.load(self.files), reference.name)
        return as_dataset(found, reference.name)

    @property
    def whole(self) -> Dataset:
        """The data set, with the training samples of all clients.

        Raises:
            ExperimentError: its samples come client by client.
        """
        if isinstance(self.dataset, Dataset):
            return self.dataset
        raise ExperimentError(
            f"compute.data: the samples of {self.dataset.name} come client by client, and this "
            "needs those of all clients together (assets of hooks, samples that are held out, "
            "compute.evaluate.per_client); leave it out, or use another data set"
        )

    def _check_no_partition(self) -> None:
        """Check that no partition is given for data that come client by client.

        Raises:
            ExperimentError: there is one.
        """
        partition = self.experiment.compute.partition
        if partition.name != "iid" or partition.settings:
            raise ExperimentError(
                f"compute.partition: the samples of {self.experiment.compute.data.name} come "
                f"client by client, so that {partition.name} has nothing to divide; leave it out"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.dataset.shape if self.told_shape is None else self.told_shape

    @property
    def classes(self) -> int:
        """Number of labels."""
        return self.dataset.classes if self.told_classes is None else self.told_classes

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the data set's tokens; none on a client that has other data instead."""
        if self.told_words is not None:
            return self.told_words
        if self.told_shape is None:
            return self.dataset.words
        try:
            return self.dataset.words
        except DataError:
            return ()

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 (hex) of the data set as it was loaded."""
        return data_sha256(self.dataset)

    def facts(self) -> dict[str, Any]:
        """Return what a run folder says of the data, so that its model can be built again."""
        data, labels = self.dataset, self.dataset.test.y
        # The accuracy of a model that always says the most frequent label.
        counts = np.unique(labels, return_counts=True)[1]
        chance = float(counts.max() / len(labels)) if len(labels) else None
        return {
            "shape": list(data.shape),
            "classes": data.classes,
            "chance": chance,
            "data_sha256": self.sha256,
        }

    @cached_property
    def normalise(self) -> Normalise | None:
        """How stored values become inputs; None: unchanged."""
        given = self.experiment.compute.normalise
        try:
            return None if given is None else Normalise(given.scale, given.mean, given.std)
        except NormaliseError as error:
            raise self._normalise_error(error) from None

    def materialise(self, raw: Raw, rows: np.ndarray | None) -> Samples:
        """Return rows of a split as the model takes them; None: all rows.

        Raises:
            ExperimentError: `compute.normalise` is missing, or does not fit the data.
        """
        try:
            return materialise(raw, rows, self.normalise)
        except NormaliseError as error:
            raise self._normalise_error(error) from None

    def _normalise_error(self, error: NormaliseError) -> ExperimentError:
        text = str(error).removeprefix("normalise").removeprefix(":").strip()
        source = self.experiment.compute.data.source
        return ExperimentError(source.problem(("compute", "normalise"), text))

    @cached_property
    def test_rows(self) -> np.ndarray:
        """The rows of the test split for the global model's evaluation: all, or a random sample."""
        number = self.experiment.compute.evaluate.sample
        total = len(self.dataset.test)
        if number is None or number >= total:
            return np.arange(total)
        rng = np.random.default_rng(derive(self.experiment.seed, "evaluate"))
        return np.sort(rng.permutation(total)[:number])

    @cached_property
    def test_samples(self) -> Samples:
        """The samples that the global model is evaluated on."""
        whole = len(self.test_rows) == len(self.dataset.test)
        rows = None if whole else self.test_rows
        return self.materialise(self.dataset.test, rows)

    def own_samples(self, path: Path, part: tuple[int, int] | None = None) -> Samples:
        """Return the samples of a client with data of its own.

        Args:
            path: an ``.npz`` file with x_train, y_train, x_test and y_test.
            part: (i, n): use only the i-th of n parts, by the experiment's partition; None: all.
        """
        own = Arrays(str(path)).load(self.files)
        rows = None
        if part is not None:
            rows = Division.of(self.experiment).parts(own, part[1])[0][part[0]]
        return self.materialise(own.train, rows)

    def use(self, test_samples: Samples, dataset: Dataset | None) -> None:
        """Use equal data instead of those that are there or would be read.

        Args:
            test_samples: the samples that the global model is evaluated on.
            dataset: the data set; None: what is there stays.
        """
        vars(self)["test_samples"] = test_samples
        if dataset is not None:
            vars(self)["dataset"] = dataset


def data_sha256(data: Dataset | CheckedFederatedData) -> str:
    """Return the SHA-256 (hex) of a data set as it was loaded, before it is normalised.

    It is over the samples, labels and users of both splits: the dtype, the shape and the bytes. Of
    data that come client by client it is over the test samples and the clients' sizes.
    """
    digest = hashlib.sha256(b"fedmx data 1\n")
    _add_split(digest, "test", data.test)
    if isinstance(data, Dataset):
        _add_split(digest, "train", data.train)
    else:
        each = data.sizes
        digest.update(json.dumps(each if isinstance(each, int) else each.tolist()).encode())
    return digest.hexdigest()


def partition_sha256(rows: GroupedRows) -> str:
    """Return the SHA-256 (hex) of the rows of each client."""
    digest = hashlib.sha256(b"fedmx partition 1\n")
    _add_array(digest, "rows", rows.rows)
    _add_array(digest, "ends", rows.ends)
    return digest.hexdigest()


def _add_split(digest: Any, split: str, raw: Raw) -> None:
    _add_array(digest, f"{split}.x", raw.x)
    _add_array(digest, f"{split}.y", raw.y)
    if raw.users is not None:
        _add_array(digest, f"{split}.users", raw.users)


def _add_array(digest: Any, name: str, array: np.ndarray) -> None:
    """Add an array with its name, dtype and shape, little-endian."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest.update(f"\n{name} {plain.dtype.str} {plain.shape}\n".encode())
    digest.update(plain.reshape(-1).view(np.uint8).data)


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
        partition = build("partition", experiment.compute.partition)
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
