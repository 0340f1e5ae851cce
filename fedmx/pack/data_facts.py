"""The data of a run by their checksums, so that a pack need not hold any sample."""

from __future__ import annotations

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.data import data_sha256, partition_sha256
from fedmx.pack.manifest import Data
from layers.compute.data.datasets import Dataset
from layers.compute.data.partitions.partition import GroupedRows


def data_facts(assembly: Assembly) -> Data:
    """Return by what the data of an experiment are known.

    Raises:
        DataError: the data are not at hand, or are wrong.
    """
    dataset = assembly.data.dataset
    partition = None
    if isinstance(dataset, Dataset):
        partition = partition_sha256(GroupedRows.joined(assembly.parts[0]))
        sizes: tuple[int, ...] | int = tuple(len(one) for one in assembly.parts[0])
    else:
        each = dataset.sizes
        sizes = each if isinstance(each, int) else tuple(each.tolist())
    return Data(
        name=dataset.name,
        sha256=data_sha256(dataset),
        partition_sha256=partition,
        sizes=sizes,
        test=len(dataset.test),
    )
