"""One sum in memory: a server that follows the protocol, and clients that a test may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layers.logic.core.hook import Identity
from layers.logic.secure_sum.graph import Degree, Trust
from layers.logic.secure_sum.opening import Opening
from layers.logic.secure_sum.peer import SEALED_BYTES, Peer
from layers.logic.secure_sum.roster import Roster


def rows(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def given_bytes(*first: bytes) -> Callable[[int], bytes]:
    """Return a source of these secrets, and of random ones after them."""
    left = list(first)
    return lambda size: left.pop(0) if left else os.urandom(size)


def with_graph(roster: Roster, neighbours: Sequence[Sequence[int]], threshold: int) -> Roster:
    """Return the roster with a graph of the test's own."""
    around = {client: tuple(neighbours[client]) for client in roster.clients}
    degree = Degree(len(neighbours[0]), threshold)
    vars(roster).update(neighbours=around, degree=degree)
    return roster


@dataclass
class Sum:
    """One sum, step by step.

    Attributes:
        peers: the clients, by number.
        server: what the server may do.
        change: changes a roster before a client gets it.
    """

    peers: Mapping[int, Peer]
    server: Trust = "malicious"
    change: Callable[[int, Roster], Roster] = lambda client, roster: roster
    boxes: dict[int, dict[int, bytes]] = field(default_factory=dict)
    unreadable: dict[int, list[int]] = field(default_factory=dict)

    @property
    def roster(self) -> Roster:
        public = {client: peer.public for client, peer in self.peers.items()}
        proofs = {client: peer.proof for client, peer in self.peers.items()}
        return self.change(-1, Roster(1, self.server, public, proofs))

    def share(self, clients: Iterable[int] | None = None) -> None:
        """Let clients share, and read what the others have sealed for them."""
        roster = self.roster
        for client in self.peers if clients is None else clients:
            sealed, refused = self.peers[client].share(self.change(client, roster))
            around = zip(roster.neighbours[client], rows(sealed, SEALED_BYTES), strict=True)
            self.boxes[client] = {one: box for one, box in around if one not in refused}

    def forward(self) -> None:
        self.forward_to(self.boxes)

    def forward_to(self, clients: Iterable[int]) -> None:
        for client in clients:
            self.unreadable[client] = self.peers[client].receive(self.for_client(client))

    def for_client(self, client: int) -> dict[int, bytes]:
        found = (one for one in self.boxes[client] if client in self.boxes.get(one, ()))
        return {one: self.boxes[one][client] for one in sorted(found)}

    def told(
        self, survivors: Sequence[int], answering: Collection[int] | None = None
    ) -> dict[int, bytes]:
        """Let clients confirm the survivors and tell their shares."""
        there = survivors if answering is None else answering
        signatures = {}
        if self.server == "malicious":
            signatures = {one: self.peers[one].confirm(survivors) for one in there}
        return {one: self.peers[one].open(survivors, signatures) for one in there}

    def opening(self, survivors: Collection[int]) -> Opening:
        edges = {
            client: [
                one for one in self.for_client(client) if client not in self.unreadable.get(one, ())
            ]
            for client in self.boxes
        }
        return Opening(self.roster, edges, frozenset(survivors))

    def opened(self, masked: Mapping[int, np.ndarray], told: Mapping[int, bytes]) -> np.ndarray:
        opening = self.opening(masked.keys())
        total = np.sum(list(masked.values()), axis=0, dtype=np.uint32)
        return opening.unmasked(total, opening.secrets(told))


def peers(
    clients: Iterable[int],
    server: Trust = "malicious",
    identities: Mapping[int, Identity] | None = None,
) -> dict[int, Peer]:
    identities = {} if identities is None else identities
    return {one: Peer(one, 1, server, identities.get(one)) for one in clients}
