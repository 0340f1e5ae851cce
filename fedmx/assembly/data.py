"""The data of an experiment: the data set, the model's inputs, checksums and the partition."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

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
from layers.compute.data.datasets.arrays import own_split, read_npz
from layers.compute.data.datasets.synthetic import Synthetic
from layers.compute.data.datasets.tables import ENDINGS, Table
from layers.compute.data.partitions import Indices, divide
from layers.compute.data.partitions.partition import GroupedRows
from layers.compute.data.targets import Targets
from layers.compute.errors import NormaliseError, PartitionError
from layers.logic.seeds import derive

MOST_PARTS = 100_000  # that a client draws to know its own: 220 MB
MOST_DRAWN = 2_000  # clients of `synthetic` whose samples it draws: 0.1 MB each


@dataclass(eq=False)
class ExperimentData:
    """The data of one experiment, each part made at its first use.

    Args:
        experiment: the experiment.
        files: the folders of data sets.
        told_shape: shape of one example, if known without the data; None: read it from the data.
        told_targets: what the targets are, likewise.
        told_words: the words of the data set's tokens, likewise.
    """

    experiment: Experiment
    files: Files = dataclasses.field(default_factory=Files)
    told_shape: tuple[int, ...] | None = None
    told_targets: Targets | None = None
    told_words: tuple[str, ...] | None = None

    @cached_property
    def dataset(self) -> Dataset | CheckedFederatedData:
        """The data set; samples are either all here, or read or generated client by client.

        Raises:
            ExperimentError: there is no such data set, or its settings are wrong.
            DataError: its files are missing or wrong.
        """
        experiment, reference = self.experiment, self.experiment.compute.data
        given: dict[str, Any] = {}
        # Data that are generated or read client by client may need to know all clients.
        if _by_client(resolve("data set", reference)):
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
            if not self.dataset.has_samples:
                raise ExperimentError(
                    f"compute.data: {self.dataset.name} has no samples, since clients alone have "
                    "them; deploy it with fedmx server, and fedmx client --data FILE at each client"
                )
            return self.dataset
        raise ExperimentError(
            f"compute.data: the samples of {self.dataset.name} come client by client, and this "
            "needs those of all clients together (assets of hooks, samples that are held out, "
            "compute.evaluate.per_client); leave it out, or use another data set"
        )

    def _check_no_partition(self) -> None:
        """Check that data that come client by client have no partition.

        Raises:
            ExperimentError: they have one.
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
    def targets(self) -> Targets:
        """What the targets of the samples are."""
        return self.dataset.targets if self.told_targets is None else self.told_targets

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the data set's tokens; empty on a client with other data."""
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
        """Return the facts of the data that a run folder needs to build the model again."""
        data, labels = self.dataset, self.dataset.test.y
        chance = None
        if data.targets.classes and len(labels):
            # The accuracy of a model that always predicts the most frequent label.
            chance = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
        return {
            "shape": list(data.shape),
            "targets": dataclasses.asdict(data.targets),
            "chance": chance,
            "data_sha256": self.sha256,
        }

    @cached_property
    def normalise(self) -> Normalise | None:
        """The normalisation of stored values; None: inputs are the stored values."""
        given = self.experiment.compute.normalise
        if given is not None and given.federated:
            raise ExperimentError(
                "compute.normalise: federated is known when clients have told their statistics; "
                "fedmx run, fedmx server and simulate ask them, and fedmx survey shows them"
            )
        try:
            return None if given is None else Normalise(given.scale, given.mean, given.std)
        except NormaliseError as error:
            raise self._normalise_error(error) from None

    def materialise(self, raw: Raw, rows: np.ndarray | None) -> Samples:
        """Return rows of a split as inputs of the model; None: all rows.

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
        """The rows of the test split that evaluate the global model: all, or a random sample."""
        number = self.experiment.compute.evaluate.sample
        total = len(self.dataset.test)
        if number is None or number >= total:
            return np.arange(total)
        rng = np.random.default_rng(derive(self.experiment.seed, "evaluate"))
        return np.sort(rng.permutation(total)[:number])

    @cached_property
    def test_samples(self) -> Samples:
        """The samples that evaluate the global model."""
        whole = len(self.test_rows) == len(self.dataset.test)
        rows = None if whole else self.test_rows
        return self.materialise(self.dataset.test, rows)

    def part_alone(self, client: int, *, taken: bool) -> Samples | None:
        """Return a client's training samples, made without those of others.

        None: one draw divides the samples of all clients.

        Args:
            client: the number of the client.
            taken: whether samples are taken out before all are divided.

        Raises:
            ExperimentError: that draw is of too many clients for one of them.
        """
        experiment, most = self.experiment, MOST_PARTS
        data, partition = experiment.compute.data, experiment.compute.partition
        clients = experiment.clients
        if data.name == "synthetic":
            if partition.name == "by-user" and not taken:
                seed = derive(experiment.seed, "data")
                source: Synthetic = build("data set", data, clients=clients, seed=seed)
                return self.materialise(source.training(client), None)
            most = MOST_DRAWN
        elif partition.name == "by-user" or _by_client(resolve("data set", data)):
            most = clients  # no draw
        if clients > most:
            raise ExperimentError(
                data.source.problem(
                    ("clients",),
                    f"a client would draw the parts of all {clients} with {data.name} and "
                    f"{partition.name}, and does so for {most} at most; use fewer, or "
                    "data that come client by client",
                )
            )
        return None

    def own_training(
        self, path: Path, part: tuple[int, int] | None = None
    ) -> tuple[Raw, np.ndarray]:
        """Return the training split of a client that has its own data, and its rows of it.

        Args:
            path: an ``.npz`` file with x_train and y_train, or a table.
            part: (i, n): use only the i-th of n parts, by the experiment's partition; None: all.

        Raises:
            DataError: the file cannot be used in this experiment.
        """
        own = self._own_split(path, "train")
        assert own is not None, "a training split is never missing"
        if part is None:
            return own, np.arange(len(own))
        whole = Dataset(str(path), own, own, self.targets, self.shape)
        return own, divided(self.experiment, whole, part[1])[0][part[0]]

    def own_tests(self, path: Path) -> Samples | None:
        """Return the test samples in a client's own file; None: it has none."""
        own = self._own_split(path, "test")
        return None if own is None else self.materialise(own, None)

    def _own_split(self, path: Path, split: Literal["train", "test"]) -> Raw | None:
        reference = self.experiment.compute.data
        if path.suffix not in ENDINGS:
            arrays = read_npz(path)
        elif reference.name == "table":
            table: Table = build("data set", reference)
            arrays = table.own(path, self.targets)
        else:
            raise DataError(
                f"{path}: the experiment's compute.data is {reference.name}, which does not name "
                "the columns of a table; only table does, without a path if clients alone have data"
            )
        return own_split(str(path), arrays, self.shape, self.targets, split)


def _by_client(target: Any) -> bool:
    """Return whether a data set, or what makes it, gives the samples client by client."""
    return callable(getattr(target, "client", None))


def data_sha256(data: Dataset | CheckedFederatedData) -> str:
    """Return the SHA-256 (hex) of a data set as loaded, before normalisation.

    Two machines compare it to see that they have the same data. It covers the dtype, shape and
    bytes of the samples, labels and users of both splits. For data that come client by client it
    covers the test samples and the clients' sizes.
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
    """Return the SHA-256 (hex) of each client's rows."""
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


def divided(
    experiment: Experiment, dataset: Dataset, clients: int, rows: Indices | None = None
) -> tuple[Sequence[Indices], Sequence[Indices]]:
    """Divide a data set by an experiment's partition; see `divide`.

    Args:
        experiment: the experiment.
        dataset: the data set.
        clients: number of clients.
        rows: the rows of the training split to divide; None: all.

    Returns:
        Each client's rows of the training split, and of the test split.

    Raises:
        ExperimentError: there is no such partition, its settings are wrong, or it cannot divide
            these data among this number of clients.
    """
    reference = experiment.compute.partition
    partition = build("partition", reference)
    try:
        return divide(dataset, partition, clients, derive(experiment.seed, "partition"), rows)
    except PartitionError as error:
        raise ExperimentError(reference.problem(str(error))) from None
