"""What can be wrong with data: a file, a download, a partition, a normalisation."""

from __future__ import annotations

from layers.compute.errors import ComputeError


class DataError(ComputeError):
    """A data set is missing, damaged or not of the shape that it must have."""


class DownloadError(DataError):
    """A file could not be fetched, or what came is not the file that was asked for."""


class NormaliseError(DataError):
    """A normalisation is missing, or does not fit the data."""


class PartitionError(DataError):
    """A data set cannot be split among the clients as asked."""
