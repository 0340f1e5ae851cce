"""What a partition is: a rule that divides samples among clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from layers.compute.errors import PartitionError

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


class Partition(Protocol):
    """A rule with its settings; no sample goes to two clients.

    The same generator gives the same split. The clients' shares are drawn before the samples in
    them. So a client gets the same share of a training and of a test split that are divided with
    equal generators.
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
            labels: of the samples, (n,).
            users: the user whom each sample is from, (n,); None: not known.
            clients: how many clients there are.
            rng: for the partition's draws.
            allow_empty: whether a client may have no sample.

        Raises:
            PartitionError: the samples cannot be divided so.
        """


@runtime_checkable
class DecidesByTraining(Protocol):
    """A partition that decides by the training split's labels; that holds for the tests, too."""

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Return the rule for the test split.

        Args:
            labels: of the training samples, (n,).
            clients: how many clients there are.
            rng: equal to the one that the training split is divided with.
        """


def check_sizes(samples: int, clients: int, least: int, what: str) -> None:
    """Check that `samples` samples are enough for `clients` clients with at least `least` each.

    Raises:
        PartitionError: they are not, or there is no client; `what` names the partition.
    """
    if clients < 1:
        raise PartitionError(f"{what}: the number of clients must be at least 1, not {clients}")
    if samples < clients * least:
        raise PartitionError(
            f"{what}: {samples} samples are too few for {clients} clients of at least {least}; "
            "use fewer clients or more data"
        )


class GroupedRows(Sequence[Indices]):
    """The rows of each group, as views of one array; two arrays, whatever the number of groups.

    Args:
        rows: the rows of all groups, one group after the other, int64 (n,).
        ends: the place in `rows` behind each group's last one, int64 (groups,).
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


# Beyond these, a float cannot tell a draw from one client with everything, or from equal parts.
_LEAST_ALPHA = 1e-3
_MOST_ALPHA = 1e6


def check_alpha(alpha: float, what: str) -> None:
    """Check that a concentration is from 0.001 to 1,000,000.

    Raises:
        PartitionError: it is not; `what` names the partition.
    """
    if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
        raise PartitionError(
            f"{what}: alpha must be from {_LEAST_ALPHA:g} to {_MOST_ALPHA:,.0f}, not {alpha}"
        )


def check_least(samples: int, what: str) -> None:
    """Check that a least number of samples is not negative.

    Raises:
        PartitionError: it is; `what` names the partition and its setting.
    """
    if samples < 0:
        raise PartitionError(f"{what} must be 0 or more, not {samples}")


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
    """Return the parts with samples moved from the largest until every part has `least`.

    There must be enough samples in all. Of two parts that are equally large the first one gives, so
    that the result is always the same.
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
        np.concatenate([pieces[0][:size], *pieces[1:]]) if len(pieces) > 1 else pieces[0][:size]
        for pieces, size in zip(given, sizes, strict=True)
    ]


def deal_classes(
    labels: Labels, holders: Mapping[int, Sequence[int]], clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Return each client's indices, ascending: the holders of a class divide it evenly.

    All clients divide a class of which no holders are known.
    """
    parts: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for label in np.unique(labels).tolist():
        who = holders.get(label, range(clients))
        samples = rng.permutation(np.flatnonzero(labels == label))
        for client, part in zip(who, np.array_split(samples, len(who)), strict=True):
            parts[client].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]
