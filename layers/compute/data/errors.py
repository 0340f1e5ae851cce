"""The errors of data: of a file, a download, a partition, a normalisation."""

from __future__ import annotations

from layers.compute.errors import ComputeError


class DataError(ComputeError):
    """A data set is missing or damaged, or does not have the shape that it must have."""


class DownloadError(DataError):
    """A file could not be downloaded, or what arrived is another file."""


class NormaliseError(DataError):
    """A normalisation is missing, or does not fit the data."""


class PartitionError(DataError):
    """A data set cannot be split among the clients as asked."""
