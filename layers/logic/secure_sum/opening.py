"""The server's end of one sum: it forwards what is sealed, adds up, and opens the sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from layers.logic.secure_sum.keys import KEY_BYTES, START, mask, pair_key, public_of
from layers.logic.secure_sum.peer import add_pair_mask
from layers.logic.secure_sum.roster import COMMITMENT, MASKING, Roster, commitment_to
from layers.logic.secure_sum.shamir import SHARE_BYTES, secret_of


class CannotOpen(Exception):
    """Too few of the clients that hold the shares of one client are left, or they send others."""


def accused(unreadable: Mapping[int, Collection[int]]) -> list[int]:
    """Return the clients without which nobody has said that it cannot read another one's shares.

    Of each such pair one client has not followed the protocol, and the two do not have the same
    mask. The one that is in most pairs goes first; of two alike, the one that has said so.

    Args:
        unreadable: the neighbours whose shares a client could not read, by client.
    """
    pairs = {(one, other) for one, others in unreadable.items() for other in others}
    out: list[int] = []
    while pairs:
        both = list(chain.from_iterable(pairs))
        says = {one for one, _ in pairs}
        out.append(max(sorted(set(both)), key=lambda one: (both.count(one), one in says)))
        pairs = {pair for pair in pairs if out[-1] not in pair}
    return out


@dataclass(frozen=True, eq=False)
class Opening:
    """What opens one sum.

    Attributes:
        roster: the clients.
        edges: the neighbours of each client whose words have a mask in common with it.
        survivors: the clients whose words are in the sum.
    """

    roster: Roster
    edges: Mapping[int, Collection[int]]
    survivors: frozenset[int]

    def check(self, tellers: Iterable[int]) -> None:
        """Check that these clients can open the sum together.

        Raises:
            CannotOpen: too few of them hold shares of one client.
        """
        told, threshold = set(tellers), self.roster.degree.threshold
        for client in self._masking:
            if (number := len(told.intersection(self.edges[client]))) < threshold:
                what = self._what(client)
                raise CannotOpen(f"{number} clients can open {what}, and {threshold} are needed")

    def secrets(self, told: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the seed of each survivor's own mask, and the masking key of all others.

        Args:
            told: what each client has told: a share of each of its neighbours.

        Raises:
            CannotOpen: a secret that is needed cannot be opened.
        """
        self.check(told)
        places, neighbours = self.roster.places, self.roster.neighbours
        found: dict[int, bytes] = {}
        for client in self._masking:
            known: dict[int, int] = {}
            for one in self.edges[client]:
                if one in told:
                    start = neighbours[one].index(client) * SHARE_BYTES
                    share = told[one][start : start + SHARE_BYTES]
                    known[places[one]] = int.from_bytes(share, "little")
            found[client] = self._opened(client, known)
        return found

    @property
    def _masking(self) -> Iterator[int]:
        """The clients whose masks are in the sum."""
        for client, around in self.edges.items():
            if client in self.survivors or not self.survivors.isdisjoint(around):
                yield client

    def _what(self, client: int) -> str:
        return f"the {'seed' if client in self.survivors else 'key'} of client {client}'s masks"

    def _opened(self, client: int, known: Mapping[int, int]) -> bytes:
        seed = client in self.survivors
        expected = self.roster.key(client, COMMITMENT if seed else MASKING)
        size, around = self.roster.degree.threshold, [*known, *known]
        for start in range(len(known)):  # a share may be wrong; others are tried in its place
            secret = secret_of({place: known[place] for place in around[start : start + size]})
            if secret.bit_length() <= 8 * KEY_BYTES:
                found = secret.to_bytes(KEY_BYTES, "little")
                if (commitment_to(found) if seed else public_of(found)) == expected:
                    return found
        raise CannotOpen(f"clients have told shares that are not of {self._what(client)}")

    def unmasked(
        self, total: np.ndarray, secrets: Mapping[int, bytes], task: bytes = START
    ) -> np.ndarray:
        """Return the sum of the survivors' words without masks, modulo 2^32.

        Args:
            total: uint32 (m,), the sum of the masked words, changed in place.
            secrets: see `secrets`.
            task: as in `Peer.masked`.
        """
        for client, secret in secrets.items():
            if client in self.survivors:
                total -= mask(secret, total.size)
                continue
            for other in self.survivors.intersection(self.edges[client]):
                # The survivor has counted the opposite of what this client would have counted.
                key = pair_key(secret, self.roster.key(other, MASKING))
                add_pair_mask(total, key, client, other, task)
        return total
