"""Hierarchical FedAvg (Liu et al. 2020, algorithm 1): clients train at edges, edges at a cloud."""

from __future__ import annotations

from dataclasses import dataclass

from fedmx import Selector


@dataclass(frozen=True)
class Edges(Selector):
    """All clients train, each at the edge of its number.

    An edge averages its clients in each round. With the aggregator `{name: by-group, together: n}`
    the cloud averages the edges after every n rounds (kappa_2), and all go on from its model.

    Attributes:
        edges: L, the number of edges.
    """

    edges: int = 3

    def run(self, round):
        for client in round.clients:
            round.train(client, group=f"edge {client % self.edges}")
        yield from round.until_all()
