"""The clients of one sum with their public keys, as each of them sees it, and their graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.secure_sum.graph import Degree, Trust, degree_for, neighbours_on_ring
from layers.logic.secure_sum.keys import KEY_BYTES, mask

PUBLIC_BYTES = 4 * KEY_BYTES
"""Of one client: the keys of its masks, of what is sealed for it and of its signatures, and the
commitment to the seed of its own mask."""


class SumRefused(LogicError):
    """An end does not go on with a sum, since another one does not follow the protocol."""


@dataclass(frozen=True, eq=False)
class Roster:
    """The clients of one sum.

    Attributes:
        round: number of the round.
        server: what the server may do.
        public: what each client has published, `PUBLIC_BYTES`, by client, ascending.
        proofs: who has signed that, by client; empty: nobody can.
        most: the number of samples by which those of each client are divided.

    Raises:
        SumRefused: there are too few clients, or one has published something else.
    """

    round: int
    server: Trust
    public: Mapping[int, bytes]
    proofs: Mapping[int, bytes]
    most: int = 1

    def __post_init__(self) -> None:
        if any(len(one) != PUBLIC_BYTES for one in self.public.values()):
            raise SumRefused(f"keys that have not {PUBLIC_BYTES} bytes")
        if list(self.public) != sorted(self.public):
            raise SumRefused("clients that are not in ascending order")

    @cached_property
    def clients(self) -> Sequence[int]:
        """The numbers of the clients, ascending."""
        return tuple(self.public)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The place of each client's shares, from 1."""
        return {client: place for place, client in enumerate(self.public, start=1)}

    @cached_property
    def digest(self) -> bytes:
        """What two clients have in common only if they see the same roster, 32 bytes."""
        about = f"fedmx secure sum, round {self.round}, most samples {self.most}"
        found = hashlib.sha256(about.encode())
        found.update(np.array(self.clients, "<i8").tobytes())
        found.update(b"".join(self.public.values()))
        return found.digest()

    @cached_property
    def degree(self) -> Degree:
        """The number of neighbours of each client, and how many open its masks."""
        return degree_for(len(self.public), self.server)

    @property
    def is_complete(self) -> bool:
        """Whether each client is a neighbour of all others."""
        return self.degree.neighbours == len(self.public) - 1

    @cached_property
    def neighbours(self) -> Mapping[int, Sequence[int]]:
        """The neighbours of each client, ascending.

        Their order on the ring follows from the keys of all of them, so that nobody can choose it.
        """
        words = mask(self.digest, len(self.clients), "<u8")
        order = np.argsort(words, kind="stable").tolist()
        found = neighbours_on_ring(order, self.degree.neighbours)
        return {
            client: tuple(self.clients[one] for one in around)
            for client, around in zip(self.clients, found, strict=True)
        }

    def key(self, client: int, number: int) -> bytes:
        """Return one of the keys that a client has published; see `PUBLIC_BYTES`."""
        return self.public[client][number * KEY_BYTES : (number + 1) * KEY_BYTES]


MASKING, SEALING, SIGNING, COMMITMENT = range(4)
"""The numbers of what a client has published."""


def commitment_to(seed: bytes) -> bytes:
    """Return what a client publishes of the seed of its own mask; it tells nothing of the seed."""
    return hashlib.sha256(b"fedmx seed of a mask" + seed).digest()


def published(round: int, client: int, public: bytes) -> bytes:
    """Return what a client signs with its certificate: whose keys they are, and for what."""
    return f"fedmx keys of client {client} in round {round}: ".encode() + public


def list_of_survivors(roster: Roster, survivors: Sequence[int]) -> bytes:
    """Return what clients sign to show each other that they were told the same list."""
    return b"fedmx survivors" + roster.digest + np.array(survivors, "<i8").tobytes()
