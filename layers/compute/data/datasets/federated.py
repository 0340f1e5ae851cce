"""Federated data: each client's samples are made or read when the client is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.datasets.arrays import from_arrays
from layers.compute.data.errors import DataError


@runtime_checkable
class FederatedData(Protocol):
    """Data that come client by client, so that no machine holds those of all clients.

    A class of this kind has its settings as parameters. Where it has a parameter `clients` or
    `seed`, it is given the number of clients and a seed that depends on the experiment's. Every
    method is a function of these and of its argument alone: a worker process calls it anew.
    """

    def client(self, number: int) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return a client's training samples, (n, ...), and their labels, integers (n,)."""

    def sizes(self) -> npt.ArrayLike:
        """Return each client's number of training samples, (clients,); or one number for all."""

    def test(self) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return the samples on which the server evaluates, (m, ...), and their labels, (m,)."""

    @property
    def classes(self) -> int:
        """How many classes there are; labels are from 0 to `classes` - 1."""


@dataclass(frozen=True, eq=False)
class CheckedFederatedData:
    """Federated data whose arrays are checked when they are made.

    Attributes:
        name: what messages call the data.
        source: makes or reads them.
        clients: how many clients there are.
        test: the server's samples.
        sizes: each client's number of training samples, int64 (clients,); or one number for all.
        classes: how many classes there are.
        shape: the shape of a sample, channels first.
        words: the word of each token of a text; empty if the samples are no text.
    """

    name: str
    source: FederatedData
    clients: int
    test: Raw
    sizes: npt.NDArray[np.int64] | int
    classes: int
    shape: tuple[int, ...]
    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: FederatedData, clients: int, name: str) -> CheckedFederatedData:
        """Return the checked data of a source; no client's samples are made.

        Raises:
            DataError: the test samples or the sizes are not as they must be.
        """
        classes = int(source.classes)
        test = _checked(source.test(), classes, f"{name}: test")
        return cls(
            name=name,
            source=source,
            clients=clients,
            test=test.test,
            sizes=_sizes(source.sizes(), clients, name),
            classes=classes,
            shape=test.shape,
            words=tuple(getattr(source, "words", ())),
        )

    def client(self, number: int) -> Raw:
        """Return a client's training samples.

        Raises:
            DataError: the client's samples are not as they must be.
        """
        where = f"{self.name}: client {number}"
        made = _checked(self.source.client(number), self.classes, where)
        announced = self.sizes if isinstance(self.sizes, int) else int(self.sizes[number])
        if len(made.train) != announced or made.shape != self.shape:
            raise DataError(
                f"{where}: has {len(made.train)} samples of shape {made.shape}, but sizes() says "
                f"{announced}, and a test sample has shape {self.shape}"
            )
        return made.train


def _checked(given: Any, classes: int, where: str) -> Dataset:
    """Return samples and labels as both splits of a data set, which checks them."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise DataError(f"{where}: gave a {type(given).__name__}; it must give samples and labels")
    return from_arrays(*given, *given, classes=classes, name=where)


def _sizes(given: npt.ArrayLike, clients: int, name: str) -> npt.NDArray[np.int64] | int:
    sizes = np.asarray(given)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (clients,)):
        raise DataError(
            f"{name}: sizes() has shape {sizes.shape} and dtype {sizes.dtype}; it must be one "
            f"whole number, or one for each of the {clients} clients"
        )
    if sizes.min() < 0 or sizes.max() < 1:
        raise DataError(f"{name}: sizes() must be 0 or more, and above 0 for a client at least")
    return int(sizes) if sizes.ndim == 0 else sizes.astype(np.int64)
