"""What a partition is, and the operations that partitions share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from layers.compute.errors import PartitionError
from layers.settings import Settings

Labels = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

Concentration = Annotated[float, Ge(1e-3), Le(1e6)]
"""Of a Dirichlet distribution. Outside of the limits a float cannot distinguish a draw from one
client with everything, or from equal parts."""


class Partition(Protocol):
    """A rule that divides samples among clients; no sample goes to two, unless a setting says so.

    One that reads labels as classes has `BY_LABEL = True`. Equal generators give equal splits. The
    clients' shares are drawn before the samples in them, so a client has the same share of a
    training and a test split that are divided with equal generators.
    """

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> Sequence[Indices]:
        """Return the indices of each client's samples.

        Args:
            labels: the targets of the samples, (n, ...).
            users: the user of each sample, (n,); None: not known.
            clients: how many clients there are.
            rng: for the partition's draws.
            allow_empty: whether a client may have no sample.

        Raises:
            PartitionError: the samples cannot be divided so.
        """


@runtime_checkable
class DecidesByTraining(Protocol):
    """A partition whose rule for the test split depends on the training labels."""

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Return the rule for the test split.

        Args:
            labels: of the training samples, (n,).
            clients: how many clients there are.
            rng: equal to the one that divides the training split.
        """


def checked(
    partition: Partition,
    labels: Labels,
    users: Indices | None,
    clients: int,
    rng: np.random.Generator,
    **how: bool,
) -> Sequence[Indices]:
    """Return the parts of a partition, after a check; see `Partition.split`.

    Raises:
        PartitionError: there is not one array of existing indices for each client.
    """
    parts = partition.split(labels, users, clients, rng, **how)
    name = f"{type(partition).__name__}.split"
    if len(parts) != clients:
        raise PartitionError(
            f"{name} returned {len(parts)} parts for {clients} clients; return one for each"
        )
    if isinstance(parts, GroupedRows):
        return parts
    arrays = [np.asarray(part) for part in parts]
    for client, rows in enumerate(arrays):
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise PartitionError(
                f"{name} returned {rows.dtype} of shape {rows.shape} for client {client}; return "
                "the indices of its samples, whole numbers (n,)"
            )
        if rows.size and not (rows.min() >= 0 and rows.max() < len(labels)):
            raise PartitionError(
                f"{name} returned index {rows.max() if rows.min() >= 0 else rows.min()} for client "
                f"{client}; indices are from 0 to {len(labels) - 1}"
            )
    return [rows.astype(np.int64, copy=False) for rows in arrays]


class Rule(Settings, ABC):
    """A partition that needs a fixed number of samples for each client.

    Attributes:
        name: its name in messages.
        BY_LABEL: whether it reads labels as classes.
    """

    refusal = PartitionError
    name: ClassVar[str]
    BY_LABEL: ClassVar[bool] = False

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Return each client's indices; see `Partition.split`."""
        least = 0 if allow_empty else self._least
        check_sizes(len(labels), clients, least, self.name)
        return self._divide(labels, clients, rng, least)

    @property
    def _least(self) -> int:
        """The fewest training samples of a client."""
        return 1

    @abstractmethod
    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        """Return each client's indices, at least `least` for each; there are enough samples."""


def check_sizes(samples: int, clients: int, least: int, what: str) -> None:
    """Check that there are enough samples for `clients` clients with at least `least` each.

    Raises:
        PartitionError: there are not, or there is no client; `what` names the partition.
    """
    if clients < 1:
        raise PartitionError(f"{what}: the number of clients must be at least 1, not {clients}")
    if samples < clients * least:
        raise PartitionError(
            f"{what}: {samples} samples are too few for {clients} clients of at least {least}; "
            "use fewer clients or more data"
        )


def draw_shares(alpha: float, clients: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return `clients` shares that add up to 1, drawn from a symmetric Dirichlet distribution."""
    return rng.dirichlet(np.full(clients, alpha))


def cut(samples: Indices, shares: npt.NDArray[np.float64]) -> list[Indices]:
    """Return `samples` cut into consecutive parts of these shares, rounded; no sample is lost."""
    return np.split(samples, _ends(len(samples), shares))


def cut_sizes(number: int, shares: npt.NDArray[np.float64]) -> Indices:
    """Return how many of `number` samples each part of `cut` has, int64 (parts,)."""
    return np.diff(_ends(number, shares), prepend=0, append=number)


def _ends(number: int, shares: npt.NDArray[np.float64]) -> Indices:
    return np.asarray(np.rint(np.cumsum(shares)[:-1] * number), np.int64)


def fill_up(parts: list[Indices], least: int) -> list[Indices]:
    """Return the parts with samples moved from the largest until each has `least`.

    There must be enough samples in all. Of several largest parts the first one gives a sample, so
    the result is deterministic.
    """
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    given: list[list[Indices]] = [[part] for part in parts]
    for poor in np.flatnonzero(sizes < least):
        while sizes[poor] < least:
            # There are enough samples in all, so some part has more than `least`.
            rich = int(np.argmax(sizes))
            sizes[rich] -= 1
            sizes[poor] += 1
            # A part shrinks from its end; a sample that was moved is not moved again.
            given[poor].append(parts[rich][sizes[rich] : sizes[rich] + 1])
    return [
        np.concatenate([pieces[0][:size], *pieces[1:]])
        for pieces, size in zip(given, sizes, strict=True)
    ]


def deal_classes(
    labels: Labels,
    holders: Mapping[int, Sequence[int]],
    clients: int,
    rng: np.random.Generator,
    each: int | None = None,
) -> list[Indices]:
    """Return each client's indices, ascending: the holders of a class split its samples evenly.

    With `each`, every holder draws that many of all samples of the class instead, or all of them if
    they are fewer. All clients hold a class without known holders.
    """
    parts: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for label in np.unique(labels).tolist():
        who = holders.get(label, range(clients))
        samples = np.flatnonzero(labels == label)
        if each is None:
            dealt = np.array_split(rng.permutation(samples), len(who))
        else:
            dealt = [rng.permutation(samples)[:each] for _ in who]
        for client, part in zip(who, dealt, strict=True):
            parts[client].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]


class GroupedRows(Sequence[Indices]):
    """The rows of each group, as views of one array: two arrays, however many groups there are.

    Args:
        rows: the rows of all groups, group by group, int64 (n,).
        ends: where each group ends in `rows`, int64 (groups,).
    """

    def __init__(self, rows: Indices, ends: Indices) -> None:
        self.rows, self.ends = rows, ends

    @classmethod
    def by_group(cls, groups: Indices, number: int) -> GroupedRows:
        """Return the rows of each of `number` groups, ascending; `groups` is each row's group."""
        ends = np.cumsum(np.bincount(groups, minlength=number))
        return cls(np.argsort(groups, kind="stable"), ends)

    @classmethod
    def joined(cls, parts: Sequence[Indices]) -> GroupedRows:
        """Return these groups as views of one array."""
        return cls(np.concatenate(parts), np.cumsum([len(one) for one in parts]))

    @property
    def sizes(self) -> Indices:
        """The number of rows of each group, int64 (groups,)."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, group: int) -> Indices: ...
    @overload
    def __getitem__(self, group: slice) -> Sequence[Indices]: ...
    def __getitem__(self, group: int | slice) -> Indices | Sequence[Indices]:
        if isinstance(group, slice):
            return [self[one] for one in range(*group.indices(len(self)))]
        place = range(len(self))[group]
        return self.rows[self.ends[place - 1] if place else 0 : self.ends[place]]
